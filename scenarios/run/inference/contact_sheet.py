"""Many small images in one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedsim.core.files import written_whole


def save_contact_sheet(images: NDArray[np.float32], file: Path, *, across: int = 8) -> None:
    """Write (n, height, width, 3) pixels in [0, 1] as one PNG, `across` images to a row."""
    n, height, width, _ = images.shape
    rows = -(-n // across)
    sheet = np.ones((rows * across, height, width, 3), dtype=np.float32)
    sheet[:n] = images
    grid = sheet.reshape(rows, across, height, width, 3).swapaxes(1, 2).reshape(rows * height, -1, 3)
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as temporary:
        Image.fromarray((grid * 255).round().astype(np.uint8)).save(temporary, format="PNG")

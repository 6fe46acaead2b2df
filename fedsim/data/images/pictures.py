"""Picture files as arrays of pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedsim.core.errors import UserError
from fedsim.core.files import check_regular, parsing


def read_pictures(
    files: Sequence[Path], height: int, width: int, fit: Callable[[Image.Image], Image.Image]
) -> NDArray[np.uint8]:
    """(n, height, width, 3): every file decoded to its last byte and brought to that size by `fit`.

    A file that is truncated or no picture is a `UserError` that names it; so is a PNG with altered bytes.
    Altered bytes of a JPEG may go unnoticed: it has no checksum. Pictures are converted to RGB with 8 bits
    per channel. Of 16 bits the upper 8 are kept. A picture with 32 bits is a `UserError`.
    """
    pixels = np.empty((len(files), height, width, 3), dtype=np.uint8)
    for target, file in zip(pixels, files, strict=True):
        target[:] = _read(file, fit)
    return pixels


def _read(file: Path, fit: Callable[[Image.Image], Image.Image]) -> NDArray[np.uint8]:
    check_regular(file)
    with parsing(f"data.path: {file} is damaged or no picture"):
        with Image.open(file) as picture:
            # Compares the checksums of a PNG; afterwards the file has to be opened again.
            picture.verify()
        with Image.open(file) as picture:
            return np.asarray(fit(_in_8_bits(picture, file).convert("RGB")), dtype=np.uint8)


def _in_8_bits(picture: Image.Image, file: Path) -> Image.Image:
    """The picture with pixels of 0 to 255, which is the only range that Pillow converts without clipping.

    Pillow itself reads colours of 16 bits as their upper 8 bits. It keeps all bits of grey pixels.
    """
    if picture.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in {"I", "F"}:
        raise UserError(
            f"data.path: {file} has pixels of 32 bits, whose range is not known: "
            "save it with 8 or 16 bits per channel"
        )
    return picture

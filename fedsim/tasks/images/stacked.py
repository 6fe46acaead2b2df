"""Image classification for stacked networks: pixels are scaled as a batch is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedsim.core.compilation import compiled
from fedsim.tasks.images import pixels
from fedsim.tasks.task import StackedTask

_GREY, _ONE = np.float32(pixels.MID_GREY), np.float32(1)


@dataclass(frozen=True)
class StackedImages(StackedTask):
    """Images stay bytes in memory: a quarter of their size as float32."""

    classes: int

    def arranged(self, stored: NDArray[Any]) -> torch.Tensor:
        """(n, height, width, 3) to (n, 3, height, width) bytes."""
        return torch.from_numpy(stored).movedim(3, 1).contiguous()

    def read_rows(self, arranged: NDArray[Any], rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Select, convert and scale in one pass."""
        scale_rows(arranged, rows, out)

    def encoded(self, targets: torch.Tensor) -> torch.Tensor:
        """One-hot labels."""
        return torch.nn.functional.one_hot(targets, self.classes).float()

    def loss_gradient(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of the mean cross-entropy: predicted probabilities minus one-hot labels, over the batch size."""
        return outputs.softmax(2).sub_(targets).div_(outputs.shape[1])


@compiled(pixels, nogil=True)
def scale_rows(images: NDArray[np.uint8], rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """`out` (rows, inputs): the chosen rows of `images` (n, inputs), scaled as `scaled_` does.

    The same with torch takes four passes: one to select, one to convert and two to scale.
    """
    for row in range(len(rows)):
        image, scaled = images[rows[row]], out[row]
        for i in range(len(image)):
            scaled[i] = np.float32(image[i]) / _GREY - _ONE

"""Labelled colour images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.classification import Classification
from fedsim.tasks.images.pixels import scaled_
from fedsim.tasks.task import Inputs

if TYPE_CHECKING:
    import torch

    from fedsim.tasks.task import StackedTask

IMAGE_INPUTS = Inputs(axes=("channels", "height", "width"))


@dataclass(frozen=True)
class ImageClassification(Classification):
    """Images (n, height, width, 3) uint8 in classes; a network sees (n, 3, height, width) from -1 to 1.

    `stored_shape` is (height, width, 3).
    """

    stored_shape: tuple[int, ...]

    title: ClassVar[str] = "image classification"
    noun: ClassVar[str] = "images"
    inputs: ClassVar[Inputs] = IMAGE_INPUTS

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels, height, width."""
        height, width, channels = self.stored_shape
        return channels, height, width

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Inputs have to be colour images of one size, and labels classes."""
        if inputs.ndim != 4 or inputs.shape[-1] != 3 or inputs.dtype != np.uint8:
            raise ValueError(
                f"{part} images: expected (n, height, width, 3) uint8, got {inputs.shape} {inputs.dtype}"
            )
        super().check(part, inputs, targets)

    def as_inputs(self, stored: NDArray[Any]) -> torch.Tensor:
        """(n, height, width, 3) bytes as (n, 3, height, width) float32 from -1 to 1."""
        import torch

        pixels = torch.from_numpy(np.ascontiguousarray(stored.transpose(0, 3, 1, 2)))
        return scaled_(pixels.to(torch.float32))

    def summary(self, targets: NDArray[Any]) -> Mapping[str, str]:
        """Size of the images, and their classes."""
        _, height, width = self.input_shape
        return {"pixels": f"{height}×{width}", **super().summary(targets)}

    def stacked(self) -> StackedTask:
        """Pixels stay bytes until a batch is read."""
        from fedsim.tasks.images.stacked import StackedImages

        return StackedImages(self.outputs)

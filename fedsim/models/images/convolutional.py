"""What the networks for images have in common."""

from __future__ import annotations

from typing import ClassVar

from fedsim.core.errors import UserError
from fedsim.models.architecture import Architecture
from fedsim.tasks.images.classification import IMAGE_INPUTS
from fedsim.tasks.task import Inputs, Task


class Convolutional(Architecture):
    """A network that begins with convolutions, which need images of some size."""

    needs: ClassVar[str] = "images"
    smallest_side: ClassVar[int]
    """Pixels of the smallest height and width that its layers leave something of."""

    @classmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Images only."""
        return inputs == IMAGE_INPUTS

    def image_shape(self, task: Task) -> tuple[int, int, int]:
        """Channels, height and width of the task's images; a `UserError` if they are too small."""
        channels, height, width = task.input_shape
        if min(height, width) < self.smallest_side:
            raise UserError(
                f"model.name: {self.name} needs images of at least {self.smallest_side}×{self.smallest_side} "
                f"pixels, these are {height}×{width}"
            )
        return channels, height, width

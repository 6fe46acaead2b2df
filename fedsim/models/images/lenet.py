"""LeNet as in the paper: two convolutions, two hidden layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from fedsim.models.images.convolutional import Convolutional
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn


class Lenet(Convolutional):
    """62,006 parameters with the default last hidden layer of 84 on 32×32 colour images in ten classes."""

    smallest_side: ClassVar[int] = 16

    name: Literal["lenet"] = "lenet"
    hidden: PositiveInt = 84

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from images to logits."""
        from torch import nn

        channels, height, width = self.image_shape(task)
        # Each stage: a 5×5 convolution without padding takes 4 pixels off, pooling halves the rest.
        rows, columns = ((((side - 4) // 2) - 4) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * rows * columns, 120), nn.ReLU(),
            nn.Linear(120, self.hidden), nn.ReLU(),
            nn.Linear(self.hidden, task.outputs),
        )  # fmt: skip

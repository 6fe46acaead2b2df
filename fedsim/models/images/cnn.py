"""A convolutional network for faces: the size that a phone would run to tell gender on LFW."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from fedsim.models.images.convolutional import Convolutional
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn


class Cnn(Convolutional):
    """Three 3×3 convolutions with pooling and one hidden layer; made for LFW gender.

    With the defaults 167,138 parameters on LFW's 62×47 colour images in two classes.
    """

    smallest_side: ClassVar[int] = 8

    name: Literal["cnn"] = "cnn"
    width: PositiveInt = 16
    """Channels of the first convolution; the second and third have two and four times as many."""
    hidden: PositiveInt = 64

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from images to logits."""
        from torch import nn

        channels, height, width = self.image_shape(task)
        first, second, third = self.width, 2 * self.width, 4 * self.width
        return nn.Sequential(
            nn.Conv2d(channels, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(third * (height // 8) * (width // 8), self.hidden), nn.ReLU(),
            nn.Linear(self.hidden, task.outputs),
        )  # fmt: skip

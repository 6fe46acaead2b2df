"""A convolutional network for faces: what a phone would run to tell gender on LFW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from torch import nn


class Cnn(Settings):
    """Three 3×3 convolutions with pooling and one hidden layer; made for LFW gender.

    With the defaults 167,138 parameters on LFW's 62×47 colour images in two classes.
    """

    name: Literal["cnn"] = "cnn"
    width: PositiveInt = 16
    """Channels of the first convolution; the second and third have two and four times as many."""
    hidden: PositiveInt = 64

    def build(self, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
        """A freshly initialised network that maps (n, *image_shape) to (n, classes) logits."""
        from torch import nn

        channels, height, width = image_shape
        rows, columns = height // 8, width // 8
        if min(rows, columns) < 1:
            raise UserError(
                f"model.name: cnn needs images of at least 8×8 pixels, these are {height}×{width}"
            )
        first, second, third = self.width, 2 * self.width, 4 * self.width
        return nn.Sequential(
            nn.Conv2d(channels, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(third * rows * columns, self.hidden), nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )  # fmt: skip

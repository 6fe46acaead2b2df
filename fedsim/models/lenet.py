"""LeNet as in the paper: two convolutions, two hidden layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from torch import nn


class Lenet(Settings):
    """62,006 parameters with the default last hidden layer of 84 on 32×32 colour images in ten classes."""

    name: Literal["lenet"] = "lenet"
    hidden: PositiveInt = 84

    def build(self, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
        """A freshly initialised network that maps (n, *image_shape) to (n, classes) logits."""
        from torch import nn

        channels, height, width = image_shape
        # Each stage: a 5×5 convolution without padding loses 4 pixels, pooling halves what is left.
        rows, columns = ((((side - 4) // 2) - 4) // 2 for side in (height, width))
        if min(rows, columns) < 1:
            raise UserError(
                f"model.name: lenet needs images of at least 16×16 pixels, these are {height}×{width}"
            )
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * rows * columns, 120), nn.ReLU(),
            nn.Linear(120, self.hidden), nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )  # fmt: skip

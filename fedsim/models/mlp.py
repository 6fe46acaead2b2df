"""A network with one hidden layer: the smallest that gradient inversion is studied on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from torch import nn


class Mlp(Settings):
    """Two linear layers with a ReLU or a sigmoid between them."""

    name: Literal["mlp"] = "mlp"
    hidden: PositiveInt = 128
    activation: Literal["relu", "sigmoid"] = "relu"

    def build(self, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
        """A freshly initialised network that maps (n, *image_shape) to (n, classes) logits."""
        from torch import nn

        between = nn.ReLU() if self.activation == "relu" else nn.Sigmoid()
        inputs = math.prod(image_shape)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, self.hidden), between, nn.Linear(self.hidden, classes)
        )

"""A network with one hidden layer: the smallest that gradient inversion is studied on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from fedsim.models.architecture import Architecture
from fedsim.tasks.task import Inputs, Task

if TYPE_CHECKING:
    from torch import nn


class Mlp(Architecture):
    """Two linear layers with a ReLU or a sigmoid between them."""

    needs: ClassVar[str] = "inputs that are numbers"

    name: Literal["mlp"] = "mlp"
    hidden: PositiveInt = 128
    activation: Literal["relu", "sigmoid"] = "relu"

    @classmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Numbers of any shape."""
        return not inputs.integer

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network, which flattens its inputs first."""
        from torch import nn

        between = nn.ReLU() if self.activation == "relu" else nn.Sigmoid()
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(task.input_shape), self.hidden),
            between,
            nn.Linear(self.hidden, task.outputs),
        )

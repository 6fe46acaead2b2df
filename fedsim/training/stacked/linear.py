"""Stacked linear layers."""

from __future__ import annotations

import torch

from fedsim.training.stacked.activation import Activation
from fedsim.training.stacked.layer import Layer, Workspace
from fedsim.training.stacked.parameter import Parameter


class Linear(Layer):
    """A linear layer and its activation: (copies, batch, …) to (copies, batch, outputs)."""

    def __init__(self, weight: Parameter, bias: Parameter | None, activation: Activation) -> None:
        self._weight, self._bias, self._activation = weight, bias, activation
        self._space = Workspace()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, …) inputs to outputs."""
        self._shape, self._x = x.shape, x.flatten(2)
        weight = self._weight.value.flatten(2)
        y = torch.bmm(self._x, weight.mT, out=self._space.buffer("y", *x.shape[:2], weight.shape[1]))
        if self._bias is not None:
            y += self._bias.value[:, None]
        self._y = self._activation.apply_(y)
        return self._y

    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; return the gradient in the inputs if a layer `further` down needs it."""
        gradient = self._activation.backward_(gradient, self._y)
        below = None
        if further:
            below = torch.bmm(
                gradient, self._weight.value.flatten(2), out=self._space.buffer("below", *self._x.shape)
            )
        self._weight.step_by_product(gradient.mT, self._x)
        if self._bias is not None:
            self._bias.step(gradient.sum(1))
        return None if below is None else below.view(self._shape)

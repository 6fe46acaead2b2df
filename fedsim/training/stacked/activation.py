"""Functions of single entries, with their gradients."""

from __future__ import annotations

from typing import Protocol

import torch


class Activation(Protocol):
    """A function of single entries that never decreases, so that pooling may come before it."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The values, in place of the arguments."""

    def pull_back_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The gradient in the arguments, in place of the gradient in the values."""


class Unchanged:
    """No activation."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The same."""
        return x

    def pull_back_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The same."""
        return gradient


class Relu:
    """The positive part."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The values, in place of the arguments."""
        return x.relu_()

    def pull_back_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """What belongs to positive values."""
        return where_positive(values, gradient, out=gradient)


class Sigmoid:
    """The logistic function."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The values, in place of the arguments."""
        return x.sigmoid_()

    def pull_back_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The derivative where the value is y is y (1 - y)."""
        return gradient.mul_(values).mul_(1 - values)


def where_positive(condition: torch.Tensor, x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """`x` where the condition is positive, else 0: many times as fast as a mask of booleans."""
    torch.ops.aten.threshold_backward.grad_input(x, condition, 0, grad_input=out)
    return out

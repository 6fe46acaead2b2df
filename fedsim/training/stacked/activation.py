"""Functions of single entries, with their gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch


class Activation(ABC):
    """A function of single entries that never decreases, so that max-pooling may come before it."""

    @abstractmethod
    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The values, in place of the arguments."""

    @abstractmethod
    def backward_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The gradient in the arguments, in place of the gradient in the values."""


class Identity(Activation):
    """No activation."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The same."""
        return x

    def backward_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The same."""
        return gradient


class Relu(Activation):
    """The positive part."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The values, in place of the arguments."""
        return x.relu_()

    def backward_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The gradient where the value is positive, else 0."""
        return where_positive(values, gradient, out=gradient)


class Sigmoid(Activation):
    """The logistic function."""

    def apply_(self, x: torch.Tensor) -> torch.Tensor:
        """The values, in place of the arguments."""
        return x.sigmoid_()

    def backward_(self, gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The derivative at a value y is y (1 - y)."""
        return gradient.mul_(values).mul_(1 - values)


def where_positive(condition: torch.Tensor, x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """`x` where the condition is positive, else 0; many times as fast as a mask of booleans."""
    torch.ops.aten.threshold_backward.grad_input(x, condition, 0, grad_input=out)
    return out

"""Stacked convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedsim.training.stacked.activation import Activation
from fedsim.training.stacked.correlation import Kernels, Pooled, correlate, correlate_backward
from fedsim.training.stacked.layer import Layer
from fedsim.training.stacked.parameter import Parameter


class Convolution(Layer):
    """A convolution, its activation and, if `pool` is 2 rather than 1, 2×2 pooling."""

    def __init__(
        self,
        weight: Parameter,
        bias: Parameter | None,
        activation: Activation,
        *,
        padding: tuple[int, int],
        pool: int,
    ) -> None:
        self._weight, self._bias, self._activation = weight, bias, activation
        self._padding, self._pool = padding, pool
        _, outputs, _, *self._kernel = weight.value.shape
        biases = torch.zeros(len(weight.value), outputs) if bias is None else bias.value
        self._kernels = Kernels(weight.value.numpy(), biases.numpy())
        self._by_weight, self._by_bias = torch.empty_like(weight.value), torch.empty_like(biases)
        self._by = Kernels(self._by_weight.numpy(), self._by_bias.numpy())
        self._buffers: dict[torch.Size, _Buffers] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, channels, height, width) to (copies, batch, outputs, rows, columns)."""
        down, right = self._padding
        if down or right:
            x = nn.functional.pad(x, (right, right, down, down))
        if x.shape not in self._buffers:
            self._buffers[x.shape] = self._buffers_for(x.shape)
        self._x, self._used = x, self._buffers[x.shape]
        correlate(x.numpy(), self._kernels, self._pool, self._used.pooled)
        # An activation never decreases, so pooling before it finds the same maxima.
        return self._activation.apply_(self._used.y)

    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; return the gradient in the inputs if a layer `further` down needs it."""
        used = self._used
        gradient = self._activation.backward_(gradient, used.y)
        above = Pooled(gradient.numpy(), used.pooled.places)
        below = used.below if further else used.below[:0]
        correlate_backward(above, self._x.numpy(), self._kernels.weight, self._by, below.numpy())
        self._weight.step(self._by_weight)
        if self._bias is not None:
            self._bias.step(self._by_bias)
        if not further:
            return None
        top, left = self._padding
        *_, height, width = below.shape
        return below[..., top : height - top, left : width - left].contiguous()

    def _buffers_for(self, shape: torch.Size) -> _Buffers:
        copies, batch, _, *sizes = shape
        rows, columns = (
            (size - side + 1) // self._pool for size, side in zip(sizes, self._kernel, strict=True)
        )
        y = torch.empty(copies, batch, self._weight.value.shape[1], rows, columns)
        return _Buffers(y, Pooled(y.numpy(), np.empty(y.shape, dtype=np.uint32)), torch.empty(shape))


@dataclass(frozen=True)
class _Buffers:
    """Memory for a step on (padded) inputs of one shape. Allocating it costs as much as filling it."""

    y: torch.Tensor
    pooled: Pooled
    """The same memory as `y`, with the position of each maximum."""
    below: torch.Tensor

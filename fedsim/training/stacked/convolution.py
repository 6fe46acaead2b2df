"""Stacked convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedsim.training.stacked.activation import Activation
from fedsim.training.stacked.correlation import Kernels, Pooled, correlate, pull_back
from fedsim.training.stacked.parameter import Parameter


class Convolution:
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
        self._rooms: dict[torch.Size, _Room] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, channels, height, width) to the same with fewer pixels and other channels."""
        down, right = self._padding
        if down or right:
            x = nn.functional.pad(x, (right, right, down, down))
        if x.shape not in self._rooms:
            self._rooms[x.shape] = self._room_for(x.shape)
        self._x, self._room = x, self._rooms[x.shape]
        correlate(x.numpy(), self._kernels, self._pool, self._room.pooled)
        # An activation never decreases: it does not change which of the outputs is the largest.
        return self._activation.apply_(self._room.y)

    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; the gradient in the inputs if somebody further down wants it."""
        room = self._room
        gradient = self._activation.pull_back_(gradient, room.y)
        above = Pooled(gradient.numpy(), room.pooled.places)
        below = room.below if further else room.below[:0]
        pull_back(above, self._x.numpy(), self._kernels.weight, self._by, below.numpy())
        self._weight.follow(self._by_weight)
        if self._bias is not None:
            self._bias.follow(self._by_bias)
        if not further:
            return None
        top, left = self._padding
        *_, height, width = below.shape
        return below[..., top : height - top, left : width - left].contiguous()

    def _room_for(self, shape: torch.Size) -> _Room:
        copies, batch, _, *sizes = shape
        rows, columns = (
            (size - side + 1) // self._pool for size, side in zip(sizes, self._kernel, strict=True)
        )
        y = torch.empty(copies, batch, self._weight.value.shape[1], rows, columns)
        return _Room(y, Pooled(y.numpy(), np.empty(y.shape, dtype=np.uint32)), torch.empty(shape))


@dataclass(frozen=True)
class _Room:
    """Memory for a step on (padded) inputs of one shape. To get it anew would cost as much as to fill it."""

    y: torch.Tensor
    pooled: Pooled
    """The same memory as `y`, and the places."""
    below: torch.Tensor

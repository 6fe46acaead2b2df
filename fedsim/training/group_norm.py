"""Group normalisation of feature maps whose channels lie side by side, and what follows it in a ResNet.

torch's own kernels expect whole planes. On a CPU with the channels of a place side by side, their backward
pass takes three to six times as long as on planes, and as long as a small convolution. These loops go along
the channels of some places at once instead, with a sum for each, so that no sum depends on the width of
vectors. They also add a shortcut and apply the ReLU on the way: maps of this size do not stay in the cache.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray
from torch import nn

from fedsim.core.compilation import compiled
from fedsim.training import addresses
from fedsim.training.addresses import address, arranged, pointer_at
from fedsim.training.stacked import vectors

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_LANES = 128
"""Numbers in a row, unless there are more channels: short rows cost as much to begin as to work on."""


class ChannelsLastGroupNorm(nn.Module):
    """What `norm` computes, and a ReLU after it if `rectified`; inputs are float32 and `channels_last`."""

    def __init__(self, norm: nn.GroupNorm, *, rectified: bool = False) -> None:
        super().__init__()
        self.norm, self.rectified = norm, rectified

    def forward(self, maps: torch.Tensor, shortcut: torch.Tensor | None = None) -> torch.Tensor:
        """(n, channels, height, width), normalised, plus a `shortcut` of the same shape."""
        norm = self.norm
        normalised: torch.Tensor = _Normalise.apply(
            maps, shortcut, norm.weight, norm.bias, norm.num_groups, norm.eps, self.rectified
        )  # type: ignore[no-untyped-call]
        return normalised


class _Kind(NamedTuple):
    """What is computed, and the sizes: `lanes` numbers in a row, see `_kind`."""

    n: int
    rows: int
    lanes: int
    channels: int
    groups: int
    epsilon: float
    rectified: bool


class _Normalise(torch.autograd.Function):
    """The loops below, as a step of automatic differentiation; they cannot be differentiated twice."""

    @staticmethod
    def forward(  # noqa: PLR0917, because `apply` knows no keywords
        ctx: Any,
        maps: torch.Tensor,
        shortcut: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor,
        groups: int,
        epsilon: float,
        rectified: bool,
    ) -> torch.Tensor:
        # Addresses know no types.
        assert maps.dtype == weight.dtype == torch.float32, "expected float32"
        maps = arranged(maps)
        kind, y = _kind(maps, groups, epsilon, rectified), torch.empty_like(maps)
        moments = np.empty((2, kind.n, groups))
        beside = None if shortcut is None else arranged(shortcut)
        _normalise(address(maps), address(beside), address(y), address(weight), address(bias), kind, moments)
        ctx.save_for_backward(maps, weight, y if rectified else maps)
        ctx.rest = kind, moments, shortcut is not None
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "loops over numpy's numbers cannot be differentiated twice: use torch's GroupNorm"
            )
        maps, weight, y = ctx.saved_tensors
        kind, moments, has_shortcut = ctx.rest
        gradient = arranged(gradient)
        by_maps, by_weight, by_bias = (torch.empty_like(t) for t in (maps, weight, weight))
        by_shortcut = torch.empty_like(maps) if has_shortcut else None
        _normalise_backward(
            (address(maps), address(y), address(gradient), address(weight)),
            (address(by_maps), address(by_shortcut), address(by_weight), address(by_bias)),
            kind,
            moments,
        )
        return by_maps, by_shortcut, by_weight, by_bias, None, None, None


def _kind(maps: torch.Tensor, groups: int, epsilon: float, rectified: bool) -> _Kind:
    """A row holds all channels of some places."""
    n, channels, height, width = maps.shape
    lanes = channels * math.gcd(height * width, max(1, _LANES // channels))
    return _Kind(n, channels * height * width // lanes, lanes, channels, groups, epsilon, rectified)


@compiled(nogil=True)
def _fold(lanes: Floats, channels: int) -> None:
    """Add up the lanes of every channel, in the first lane."""
    for begin in range(channels, len(lanes), channels):
        for c in range(channels):
            lanes[c] += lanes[begin + c]


@compiled(nogil=True)
def _repeat(lanes: Floats, channels: int) -> None:
    """Give all lanes of a channel the number of the first."""
    for begin in range(channels, len(lanes), channels):
        for c in range(channels):
            lanes[begin + c] = lanes[c]


@compiled(addresses, vectors, nogil=True, error_model="numpy")
def _normalise(  # noqa: PLR0917, because compiled functions are quickest without keywords
    maps: int, beside: int, outputs: int, weights: int, biases: int, kind: _Kind, moments: Doubles
) -> None:
    """Write the outputs, and the `moments`: (2, n, groups) means, and one over standard deviations."""
    n, rows, lanes, channels, groups, epsilon, rectified = kind
    shape = (n, rows, lanes)
    x, y = carray(pointer_at(maps), shape), carray(pointer_at(outputs), shape)
    shortcut = carray(pointer_at(beside if beside else maps), shape)
    weight, bias = carray(pointer_at(weights), channels), carray(pointer_at(biases), channels)
    means, rates = moments
    size, count = channels // groups, rows * lanes // groups
    in_lines = lanes // vectors.LINE_FLOATS * vectors.LINE_FLOATS
    sums, squares = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    scale, shift = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    least = np.float32(0 if rectified else -np.inf)
    for i in range(n):
        sums[:] = 0
        squares[:] = 0
        for lane in range(0, in_lines, vectors.LINE_FLOATS):
            vectors.add_squares(x, i * rows * lanes + lane, lanes, rows, sums, squares, lane)
        for row in range(rows):
            for lane in range(in_lines, lanes):
                sums[lane] += x[i, row, lane]
                squares[lane] += x[i, row, lane] * x[i, row, lane]
        _fold(sums, channels)
        _fold(squares, channels)
        for group in range(groups):
            mean, square = 0.0, 0.0
            for c in range(group * size, (group + 1) * size):
                mean += sums[c]
                square += squares[c]
            mean /= count
            # Rounding may make the variance of equal numbers a little negative.
            rate = 1 / np.sqrt(max(square / count - mean * mean, 0.0) + epsilon)
            means[i, group], rates[i, group] = mean, rate
            for c in range(group * size, (group + 1) * size):
                scale[c] = rate * weight[c]
                shift[c] = bias[c] - mean * rate * weight[c]
        _repeat(scale, channels)
        _repeat(shift, channels)
        for row in range(rows):
            for lane in range(lanes):
                added = shortcut[i, row, lane] if beside else np.float32(0)
                y[i, row, lane] = max(x[i, row, lane] * scale[lane] + shift[lane] + added, least)


@compiled(addresses, vectors, nogil=True, error_model="numpy")
def _normalise_backward(
    values: tuple[int, int, int, int], results: tuple[int, int, int, int], kind: _Kind, moments: Doubles
) -> None:
    """From the gradient in the outputs, write those in maps, shortcut, weights and biases.

    `values` are the addresses of maps, outputs, gradient and weights. The outputs are read only if they are
    rectified.
    """
    n, rows, lanes, channels, groups, _, rectified = kind
    shape = (n, rows, lanes)
    x, y = carray(pointer_at(values[0]), shape), carray(pointer_at(values[1]), shape)
    gradient, weight = carray(pointer_at(values[2]), shape), carray(pointer_at(values[3]), channels)
    has_shortcut = results[1] != 0
    by_x = carray(pointer_at(results[0]), shape)
    by_shortcut = carray(pointer_at(results[1] if has_shortcut else results[0]), shape)
    by_weight, by_bias = carray(pointer_at(results[2]), channels), carray(pointer_at(results[3]), channels)
    means, rates = moments
    size, count = channels // groups, rows * lanes // groups
    in_lines = lanes // vectors.LINE_FLOATS * vectors.LINE_FLOATS
    sums, products = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    of_gradient, of_x = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    constant, above = np.empty(lanes, np.float32), np.float32(0 if rectified else -np.inf)
    by_weight[:] = 0
    by_bias[:] = 0
    for i in range(n):
        sums[:] = 0
        products[:] = 0
        for lane in range(0, in_lines, vectors.LINE_FLOATS):
            begin = i * rows * lanes + lane
            vectors.add_passed(gradient, y, above, x, by_shortcut, begin, lanes, rows, sums, products, lane)
        for row in range(rows):
            for lane in range(in_lines, lanes):
                passed = gradient[i, row, lane] if y[i, row, lane] > above else np.float32(0)
                by_shortcut[i, row, lane] = passed
                sums[lane] += passed
                products[lane] += passed * x[i, row, lane]
        _fold(sums, channels)
        _fold(products, channels)
        for group in range(groups):
            mean, rate = means[i, group], rates[i, group]
            total, product = 0.0, 0.0
            for c in range(group * size, (group + 1) * size):
                total += sums[c] * weight[c]
                product += products[c] * weight[c]
            slope = (total * mean - product) * rate**3 / count
            for c in range(group * size, (group + 1) * size):
                of_gradient[c] = rate * weight[c]
                of_x[c] = slope
                constant[c] = -slope * mean - total * rate / count
                by_weight[c] += (products[c] - sums[c] * mean) * rate
                by_bias[c] += sums[c]
        _repeat(of_gradient, channels)
        _repeat(of_x, channels)
        _repeat(constant, channels)
        # Two loops, because no compiler knows that the first is right for both.
        if has_shortcut:
            for row in range(rows):
                for lane in range(lanes):
                    passed = by_shortcut[i, row, lane]
                    by_x[i, row, lane] = (
                        passed * of_gradient[lane] + x[i, row, lane] * of_x[lane] + constant[lane]
                    )
            continue
        for row in range(rows):
            for lane in range(lanes):
                passed = by_x[i, row, lane]
                by_x[i, row, lane] = (
                    passed * of_gradient[lane] + x[i, row, lane] * of_x[lane] + constant[lane]
                )

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
from numpy.typing import NDArray
from torch import nn

from fedsim.core.compilation import compiled

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


class _Affine(NamedTuple):
    """Of every channel, (channels,)."""

    weight: Floats
    bias: Floats


class _Kind(NamedTuple):
    epsilon: float
    has_shortcut: bool
    rectified: bool


class _Moments(NamedTuple):
    """(n, groups) the mean, and one over the standard deviation."""

    means: Doubles
    rates: Doubles


class _Values(NamedTuple):
    """(n, rows, lanes), see `_rows`; the shortcut is only read, or written to, if there is one."""

    x: Floats
    shortcut: Floats
    y: Floats


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
        x, y = _rows(maps), torch.empty_like(maps)
        kind = _Kind(epsilon, shortcut is not None, rectified)
        affine = _Affine(weight.numpy(), bias.numpy())
        moments = _Moments(*np.empty((2, len(x), groups)))
        _normalise(_Values(x, x if shortcut is None else _rows(shortcut), _rows(y)), affine, kind, moments)
        ctx.save_for_backward(maps, weight, bias, y if rectified else maps)
        ctx.rest = kind, moments
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        maps, weight, bias, y = ctx.saved_tensors
        kind, moments = ctx.rest
        by_maps = torch.empty_like(maps)
        by_shortcut = torch.empty_like(maps) if kind.has_shortcut else None
        by_weight, by_bias = torch.empty(2, len(weight))
        x, above, below = _rows(maps), _rows(gradient), _rows(by_maps)
        _normalise_backward(
            _Values(x, x, _rows(y)),
            _Values(below, below if by_shortcut is None else _rows(by_shortcut), above),
            _Affine(weight.numpy(), bias.numpy()),
            _Affine(by_weight.numpy(), by_bias.numpy()),
            (kind, moments),
        )
        return by_maps, by_shortcut, by_weight, by_bias, None, None, None


def _rows(maps: torch.Tensor) -> Floats:
    """(n, rows, lanes): a row holds all channels of some places; the same memory if maps are arranged."""
    n, channels, height, width = maps.shape
    lanes = channels * math.gcd(height * width, max(1, _LANES // channels))
    size = channels * height * width
    arranged = maps.contiguous(memory_format=torch.channels_last)
    rows: Floats = arranged.as_strided((n, size // lanes, lanes), (size, lanes, 1)).numpy()
    return rows


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


@compiled(nogil=True, error_model="numpy")
def _normalise(values: _Values, affine: _Affine, kind: _Kind, moments: _Moments) -> None:
    """Write `values.y` and the moments."""
    x, shortcut, y = values
    weight, bias = affine
    epsilon, has_shortcut, rectified = kind
    means, rates = moments
    n, rows, lanes = x.shape
    channels, groups = len(weight), means.shape[1]
    size, count = channels // groups, rows * lanes // groups
    sums, squares = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    scale, shift = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    least = np.float32(0 if rectified else -np.inf)
    for i in range(n):
        sums[:] = 0
        squares[:] = 0
        for row in range(rows):
            for lane in range(lanes):
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
                beside = shortcut[i, row, lane] if has_shortcut else np.float32(0)
                y[i, row, lane] = max(x[i, row, lane] * scale[lane] + shift[lane] + beside, least)


@compiled(nogil=True, error_model="numpy")
def _normalise_backward(
    values: _Values, by_values: _Values, affine: _Affine, by_affine: _Affine, rest: tuple[_Kind, _Moments]
) -> None:
    """From the gradient in `y`, write those in `x`, in the shortcut, and in weight and bias.

    `values.y` is read only if it is rectified, and the shortcut's values never.
    """
    x, _, y = values
    by_x, by_shortcut, gradient = by_values
    weight, _ = affine
    by_weight, by_bias = by_affine
    (_, has_shortcut, rectified), (means, rates) = rest
    n, rows, lanes = x.shape
    channels, groups = len(weight), means.shape[1]
    size, count = channels // groups, rows * lanes // groups
    sums, products = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    of_gradient, of_x = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    constant, zero = np.empty(lanes, np.float32), np.float32(0)
    by_weight[:] = 0
    by_bias[:] = 0
    for i in range(n):
        sums[:] = 0
        products[:] = 0
        for row in range(rows):
            for lane in range(lanes):
                passed = gradient[i, row, lane] if not rectified or y[i, row, lane] > zero else zero
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
        for row in range(rows):
            for lane in range(lanes):
                passed = gradient[i, row, lane] if not rectified or y[i, row, lane] > zero else zero
                by_x[i, row, lane] = (
                    passed * of_gradient[lane] + x[i, row, lane] * of_x[lane] + constant[lane]
                )
        if has_shortcut:
            # A loop of its own, because loops with more arrays are not vectorised.
            for row in range(rows):
                for lane in range(lanes):
                    is_open = not rectified or y[i, row, lane] > zero
                    by_shortcut[i, row, lane] = gradient[i, row, lane] if is_open else zero

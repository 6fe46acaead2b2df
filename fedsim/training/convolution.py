"""3×3 convolutions of feature maps as matrix products, where these are quicker than torch's own kernels.

There are two such cases on a CPU. One is the gradient in the maps with stride 2. The other are wide kernels,
above all those that are larger than their maps, as at the end of ResNet-18: torch arranges them anew in every
step, and multiplies by them at half the speed. Here the channels of a place lie side by side in kernels and
maps, and nothing is arranged.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numba import carray  # type: ignore[attr-defined]
from torch import nn

from fedsim.core.compilation import compiled
from fedsim.training import addresses
from fedsim.training.addresses import address, arranged, pointer_at
from fedsim.training.local_training import WIDE_KERNEL
from fedsim.training.products import times_transposed

_TAPS = 9
"""Places that a kernel sees at a time, line by line."""


class ChannelsLastConvolution(nn.Module):
    """What `layer` computes, a convolution that `is_quick`; inputs are float32 and `channels_last`."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to (n, outputs, rows, columns)."""
        outputs: torch.Tensor = _convolved(maps, self.layer, None)[0]
        return outputs

    def beside(self, maps: torch.Tensor, shortcut: nn.Conv2d) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs, and those of a shortcut that `fits_beside`; gradients in the maps are added up."""
        both: tuple[torch.Tensor, torch.Tensor] = _convolved(maps, self.layer, shortcut)
        return both


def is_quick(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether it is a 3×3 convolution to which one of the two cases may apply."""
    return _is_plain(layer, side=3) and (layer.stride == (2, 2) or layer.in_channels >= WIDE_KERNEL)


def fits_beside(shortcut: nn.Module, layer: nn.Conv2d) -> bool:
    """Whether a shortcut of a quick layer is a 1×1 convolution, and both have stride 2."""
    return _is_plain(shortcut, side=1) and shortcut.stride == layer.stride == (2, 2)


def _is_plain(layer: nn.Module, *, side: int) -> TypeGuard[nn.Conv2d]:
    return (
        type(layer) is nn.Conv2d
        and layer.kernel_size == (side, side)
        and layer.padding == (side // 2, side // 2)
        and layer.padding_mode == "zeros"
        and layer.stride in {(1, 1), (2, 2)}
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.bias is None
    )


def _convolved(maps: torch.Tensor, layer: nn.Conv2d, shortcut: nn.Conv2d | None) -> Any:
    """The outputs of both layers."""
    beside = None if shortcut is None else shortcut.weight
    return _Convolve.apply(maps, layer.weight, beside, layer.stride[0])  # type: ignore[no-untyped-call]


class _Shape(NamedTuple):
    """Of maps, and of the outputs for them."""

    n: int
    channels: int
    height: int
    width: int
    rows: int
    columns: int
    stride: int


class _Convolve(torch.autograd.Function):
    """A 3×3 convolution, and perhaps a 1×1 convolution of the same maps; not to be differentiated twice."""

    @staticmethod
    def forward(
        ctx: Any, maps: torch.Tensor, weight: torch.Tensor, beside: torch.Tensor | None, stride: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        # Addresses know no types.
        assert maps.dtype == weight.dtype == torch.float32, "expected float32"
        maps = arranged(maps)
        n, channels, height, width = maps.shape
        shape = _Shape(n, channels, height, width, -(-height // stride), -(-width // stride), stride)
        ctx.save_for_backward(maps, weight, beside)
        ctx.shape = shape
        if _is_larger(weight, shape):
            by_place = times_transposed(_patches(maps, shape), _matrix(weight))
            outputs = by_place.view(n, shape.rows, shape.columns, -1).permute(0, 3, 1, 2)
        else:
            outputs = torch.conv2d(maps, weight, stride=stride, padding=1)
        return outputs, None if beside is None else torch.conv2d(maps, beside, stride=stride)

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor, of_beside: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "loops over numpy's numbers cannot be differentiated twice: use torch's Conv2d"
            )
        maps, weight, beside = ctx.saved_tensors
        shape: _Shape = ctx.shape
        gradient = arranged(gradient)
        if shape.channels >= WIDE_KERNEL:
            matrix = times_transposed(_rows(gradient).T, _patches(maps, shape).T)
            by_weight = matrix.view(len(weight), 3, 3, -1).permute(0, 3, 1, 2)
        else:
            by_weight = _own_gradient(gradient, maps, weight, shape.stride, of_maps=False)
        by_beside = by_its_places = None
        if beside is not None and of_beside is not None:
            of_beside = arranged(of_beside)
            by_beside = _own_gradient(of_beside, maps, beside, shape.stride, of_maps=False)
            by_its_places = times_transposed(_rows(of_beside), _matrix(beside).T)
        if shape.stride == 1 and not _is_larger(weight, shape):
            by_maps = _own_gradient(gradient, maps, weight, shape.stride, of_maps=True)
        else:
            by_maps = torch.empty_like(maps)
            by_patches = times_transposed(_rows(gradient), _matrix(weight).T)
            fold = _fold if shape.stride == 1 else _fold_strided
            fold(address(by_patches), address(by_its_places), address(by_maps), shape)
        return by_maps, by_weight, by_beside, None


def _is_larger(weight: torch.Tensor, shape: _Shape) -> bool:
    """Whether a kernel is wide, and larger than the maps."""
    return shape.channels >= WIDE_KERNEL and shape.n * shape.rows * shape.columns <= len(weight)


def _rows(maps: torch.Tensor) -> torch.Tensor:
    """(places, channels) the same memory, if they are arranged."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1])


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    """(outputs, what they see) of a kernel; the same memory, if it is wide."""
    return weight.permute(0, 2, 3, 1).reshape(len(weight), -1)


def _patches(maps: torch.Tensor, shape: _Shape) -> torch.Tensor:
    """(places, what a kernel sees there)."""
    patches = maps.new_empty(shape.n * shape.rows * shape.columns, _TAPS * shape.channels)
    _unfold(address(maps), address(patches), shape)
    return patches


def _own_gradient(
    gradient: torch.Tensor, maps: torch.Tensor, weight: torch.Tensor, stride: int, *, of_maps: bool
) -> torch.Tensor:
    """torch's gradient of a convolution in its maps, or in its weight."""
    padding = weight.shape[2] // 2
    wanted = (of_maps, not of_maps, False)
    both = torch.ops.aten.convolution_backward(
        gradient, maps, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, wanted
    )
    found: torch.Tensor = both[0 if of_maps else 1]
    return found


@compiled(addresses, nogil=True, error_model="numpy")
def _unfold(maps: int, patches: int, shape: _Shape) -> None:
    """Write what the kernel sees at each place."""
    n, channels, height, width, rows, columns, stride = shape
    x = carray(pointer_at(maps), (n, height, width, channels))
    patch = carray(pointer_at(patches), (n, rows, columns, _TAPS, channels))
    for i in range(n):
        for row in range(rows):
            for column in range(columns):
                for tap in range(_TAPS):
                    down, right = row * stride + tap // 3 - 1, column * stride + tap % 3 - 1
                    if 0 <= down < height and 0 <= right < width:
                        patch[i, row, column, tap] = x[i, down, right]
                    else:
                        patch[i, row, column, tap] = 0


@compiled(addresses, nogil=True, error_model="numpy")
def _fold(by_patches: int, _: int, by_maps: int, shape: _Shape) -> None:
    """From the gradient in what the kernel sees to that in the maps: a sum for each place; with stride 1."""
    n, channels, height, width, _, _, _ = shape
    patch = carray(pointer_at(by_patches), (n, height, width, _TAPS, channels))
    x = carray(pointer_at(by_maps), (n, height, width, channels))
    for i in range(n):
        for down in range(height):
            for right in range(width):
                x[i, down, right] = 0
                for tap in range(_TAPS):
                    row, column = down + 1 - tap // 3, right + 1 - tap % 3
                    if 0 <= row < height and 0 <= column < width:
                        for c in range(channels):
                            x[i, down, right, c] += patch[i, row, column, tap, c]


@compiled(addresses, nogil=True, error_model="numpy")
def _fold_strided(by_patches: int, by_places: int, by_maps: int, shape: _Shape) -> None:
    """The same with stride 2, plus the gradient in the places that the shortcut sees, if there is one.

    Of four places side by side, one, two, two and four kernels see each: those at it, right of it and below.
    """
    n, channels, height, width, rows, columns, _ = shape
    patch = carray(pointer_at(by_patches), (n, rows, columns, _TAPS, channels))
    seen = carray(pointer_at(by_places if by_places else by_patches), (n, rows, columns, channels))
    x = carray(pointer_at(by_maps), (n, height, width, channels))
    for i in range(n):
        for row in range(rows):
            below = min(row + 1, rows - 1)
            has_below = np.float32(row + 1 < rows)
            for column in range(columns):
                beyond = min(column + 1, columns - 1)
                has_beyond = np.float32(column + 1 < columns)
                here, right = patch[i, row, column], patch[i, row, beyond]
                down, across = patch[i, below, column], patch[i, below, beyond]
                for c in range(channels):
                    other = seen[i, row, column, c] if by_places else np.float32(0)
                    x[i, 2 * row, 2 * column, c] = here[4, c] + other
                if 2 * column + 1 < width:
                    for c in range(channels):
                        x[i, 2 * row, 2 * column + 1, c] = here[5, c] + has_beyond * right[3, c]
                if 2 * row + 1 < height:
                    for c in range(channels):
                        x[i, 2 * row + 1, 2 * column, c] = here[7, c] + has_below * down[1, c]
                if 2 * row + 1 < height and 2 * column + 1 < width:
                    for c in range(channels):
                        x[i, 2 * row + 1, 2 * column + 1, c] = (
                            here[8, c]
                            + has_beyond * right[6, c]
                            + has_below * (down[2, c] + has_beyond * across[0, c])
                        )

"""Stacked convolutions."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import nn

from fedsim.stacked.activation import Activation, where_positive
from fedsim.stacked.layer import Workspace
from fedsim.stacked.parameter import Parameter


class Convolution:
    """A convolution, its activation and, if `pool` is 2 rather than 1, 2×2 pooling.

    One product of all kernels with all patches of an image. The four places that a pooled pixel chooses from
    are channels of their own: four shifted kernels on patches that are larger by one pixel, at every other
    place. That is more arithmetic, but in a product of a shape that processors like, and with less than half
    as much to write down.
    """

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
        copies, outputs, *self._size, channels = weight.value.shape
        self._reach = [side + pool - 1 for side in self._size]
        self._kernels = torch.zeros(copies, pool, pool, outputs, *self._reach, channels)
        self._space = Workspace()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, height, width, channels) to the same with fewer pixels and other channels."""
        down, right = self._padding
        if down or right:
            x = nn.functional.pad(x, (0, 0, right, right, down, down))
        self._shape = x.shape
        patches = x.unfold(2, self._reach[0], self._pool).unfold(3, self._reach[1], self._pool)
        patches = patches.permute(0, 1, 2, 3, 5, 6, 4)
        self._patches = self._space.room("patches", *patches.shape).copy_(patches)
        for kernel in self._shifted(self._kernels):
            kernel.copy_(self._weight.value)
        places = self._places()
        torch.bmm(_matrix(self._kernels), _matrix(self._patches).mT, out=_matrix(places))
        chosen = self._choose(places).permute(0, 2, 3, 4, 1)
        self._y = self._space.room("y", *chosen.shape)
        if self._bias is None:
            self._y.copy_(chosen)
        else:
            torch.add(chosen, self._bias.value[:, None, None, None], out=self._y)
        return self._activation.apply_(self._y)

    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; the gradient in the inputs if somebody further down wants it."""
        gradient = self._activation.pull_back_(gradient, self._y).permute(0, 4, 1, 2, 3)
        gradient = self._space.room("chosen", *gradient.shape).copy_(gradient)
        places = _matrix(self._give_back(gradient))
        below = None
        if further:
            by_patch = self._space.room("by_patch", *self._patches.shape)
            torch.bmm(places.mT, _matrix(self._kernels), out=_matrix(by_patch))
            below = self._fold(by_patch)
        by_kernel = torch.bmm(places, _matrix(self._patches)).view(self._kernels.shape)
        self._weight.follow(*self._shifted(by_kernel))
        if self._bias is not None:
            self._bias.follow(gradient.flatten(2).sum(2))
        return below

    def _shifted(self, kernels: torch.Tensor) -> list[torch.Tensor]:
        """The parts of the larger kernels that hold the weights, (copies, outputs, *size, channels) each."""
        high, wide = self._size
        return [
            kernels[:, down, right, :, down : down + high, right : right + wide]
            for down, right in product(range(self._pool), repeat=2)
        ]

    def _places(self) -> torch.Tensor:
        """Room for (copies, down, right, outputs, batch, rows, columns): all that pooling chooses from."""
        return self._space.room("places", *self._kernels.shape[:4], *self._patches.shape[1:4])

    def _choose(self, places: torch.Tensor) -> torch.Tensor:
        """The largest of each pixel's places: first of those above each other, then of what is left."""
        if self._pool == 1:
            return places[:, 0, 0]
        self._leads = []
        for contest in ("rows", "columns"):
            first, second = places.unbind(1)
            self._leads.append(
                torch.sub(second, first, out=self._space.room(f"{contest} lead", *first.shape))
            )
            places = torch.maximum(first, second, out=self._space.room(contest, *first.shape))
        return places

    def _give_back(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient at the places that were chosen, 0 at the others."""
        if self._pool == 1:
            return gradient[:, None, None]
        by_row, by_column = self._leads
        for lead, places in ((by_column, self._space.room("rows", *by_row.shape)), (by_row, self._places())):
            first, second = places.unbind(1)
            where_positive(lead, gradient, out=second)
            torch.sub(gradient, second, out=first)
            gradient = places
        return gradient

    def _fold(self, by_patch: torch.Tensor) -> torch.Tensor:
        """The sum of all patches, each at its place in the image."""
        copies, batch, height, width, channels = self._shape
        rows, columns = by_patch.shape[2:4]
        # Patches of whole tiles are added tile by tile: longer runs of memory, and fewer additions.
        tile = math.gcd(self._pool, *self._reach)
        step = self._pool // tile
        reach = [side // tile for side in self._reach]
        high, wide = -(-height // tile), -(-width // tile)
        image = self._space.room("image", copies * batch, high, tile, wide, tile * channels).zero_()
        tiles = by_patch.view(copies * batch, rows, columns, reach[0], tile, reach[1], tile * channels)
        for down, right in product(*map(range, reach)):
            here = image[:, down : down + rows * step : step, :, right : right + columns * step : step]
            here += tiles[:, :, :, down, :, right].transpose(2, 3)
        image = image.view(copies, batch, high * tile, wide * tile, channels)
        top, left = self._padding
        return image[:, :, top : height - top, left : width - left].contiguous()


def _matrix(x: torch.Tensor) -> torch.Tensor:
    """Kernels, patches or places as one matrix for each copy: three axes are its rows, three its columns."""
    return x.flatten(4).flatten(1, 3)

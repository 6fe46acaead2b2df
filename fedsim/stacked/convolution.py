"""Stacked convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import nn

from fedsim.stacked.activation import Activation, where_positive
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
        copies, outputs, *size, channels = weight.value.shape
        self._reach = [side + pool - 1 for side in size]
        self._kernels = torch.zeros(copies, pool, pool, outputs, *self._reach, channels)
        self._by_kernel = torch.empty_like(self._kernels)
        self._shifted, self._by_shifted = (
            [
                kernels[:, down, right, :, down : down + size[0], right : right + size[1]]
                for down, right in product(range(pool), repeat=2)
            ]
            for kernels in (self._kernels, self._by_kernel)
        )
        self._rooms: dict[torch.Size, _Room] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, height, width, channels) to the same with fewer pixels and other channels."""
        down, right = self._padding
        if down or right:
            x = nn.functional.pad(x, (0, 0, right, right, down, down))
        if x.shape not in self._rooms:
            self._rooms[x.shape] = _Room(x.shape, self._kernels.shape)
        self._room = room = self._rooms[x.shape]
        patches = x.unfold(2, self._reach[0], self._pool).unfold(3, self._reach[1], self._pool)
        room.patches.copy_(patches.permute(0, 1, 2, 3, 5, 6, 4))
        for kernel in self._shifted:
            kernel.copy_(self._weight.value)
        torch.bmm(_matrix(self._kernels), room.patch_matrix.mT, out=room.place_matrix)
        for contest in room.contests:
            torch.sub(contest.second, contest.first, out=contest.lead)
            torch.maximum(contest.first, contest.second, out=contest.winner)
        if self._bias is None:
            room.y.copy_(room.chosen_last)
        else:
            torch.add(room.chosen_last, self._bias.value[:, None, None, None], out=room.y)
        return self._activation.apply_(room.y)

    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; the gradient in the inputs if somebody further down wants it."""
        room = self._room
        # What was chosen, and from which places, is not needed any more: the gradients take that memory.
        room.chosen_last.copy_(self._activation.pull_back_(gradient, room.y))
        for contest in reversed(room.contests):
            where_positive(contest.lead, contest.winner, out=contest.second)
            torch.sub(contest.winner, contest.second, out=contest.first)
        below = None
        if further:
            torch.bmm(room.place_matrix.mT, _matrix(self._kernels), out=_matrix(room.by_patch))
            below = self._fold(room)
        torch.bmm(room.place_matrix, room.patch_matrix, out=_matrix(self._by_kernel))
        self._weight.follow(*self._by_shifted)
        if self._bias is not None:
            self._bias.follow(room.chosen.flatten(2).sum(2))
        return below

    def _fold(self, room: _Room) -> torch.Tensor:
        """The sum of all patches' gradients, each at its place in the image, without the padding."""
        room.image.zero_()
        for here, part in room.tiles:
            here.add_(part)
        top, left = self._padding
        _, _, height, width, _ = room.shape
        return room.whole[:, :, top : height - top, left : width - left].contiguous()


@dataclass(frozen=True)
class _Contest:
    """Pairs of places of which pooling keeps the larger; `lead` is how much the second is ahead."""

    first: torch.Tensor
    second: torch.Tensor
    lead: torch.Tensor
    winner: torch.Tensor


class _Room:
    """Memory for a step on inputs of one shape, (copies, batch, height, width, channels).

    It is the same in every step, and so are all views of it: to make them anew, or to get fresh memory, costs
    as much as the smaller layers themselves.
    """

    def __init__(self, shape: torch.Size, kernels: torch.Size) -> None:
        self.shape = shape
        copies, batch, height, width, channels = shape
        _, pool, _, outputs, *reach, _ = kernels
        rows, columns = ((side - far) // pool + 1 for side, far in zip((height, width), reach, strict=True))
        self.patches = torch.empty(copies, batch, rows, columns, *reach, channels)
        self.patch_matrix = _matrix(self.patches)
        places = torch.empty(copies, pool, pool, outputs, batch, rows, columns)
        self.place_matrix = _matrix(places)
        # The larger of two places above each other, and then the larger of two that are left.
        self.contests: list[_Contest] = []
        while pool == 2 and len(self.contests) < 2:
            first, second = places.unbind(1)
            places = torch.empty_like(first)
            self.contests.append(_Contest(first, second, torch.empty_like(first), places))
        self.chosen = places.view(copies, outputs, batch, rows, columns)
        self.chosen_last = self.chosen.permute(0, 2, 3, 4, 1)
        self.y = torch.empty(self.chosen_last.shape)
        # Patches of whole tiles are added tile by tile: longer runs of memory, and fewer additions.
        tile = math.gcd(pool, *reach)
        step = pool // tile
        high, wide = -(-height // tile), -(-width // tile)
        self.by_patch = torch.empty_like(self.patches)
        self.image = torch.empty(copies * batch, high, tile, wide, tile * channels)
        self.whole = self.image.view(copies, batch, high * tile, wide * tile, channels)
        parts = self.by_patch.view(
            copies * batch, rows, columns, reach[0] // tile, tile, reach[1] // tile, tile * channels
        )
        self.tiles = [
            (
                self.image[:, down : down + rows * step : step, :, right : right + columns * step : step],
                parts[:, :, :, down, :, right].transpose(2, 3),
            )
            for down, right in product(*(range(far // tile) for far in reach))
        ]


def _matrix(x: torch.Tensor) -> torch.Tensor:
    """Kernels, patches or places as one matrix for each copy: three axes are its rows, three its columns."""
    return x.flatten(4).flatten(1, 3)

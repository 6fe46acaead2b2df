"""Where a step begins: with the images of all copies, from which every batch is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from fedsim.pixels import scaled_
from fedsim.stacked.layer import Workspace


@dataclass(frozen=True)
class Holdings:
    """The images that the copies are trained on: copy k is a client's, and learns from `size` images.

    `images` (n, channels, height, width) are the bytes of all clients, and `labels` theirs; `positions` says
    where each client's are, (size,).
    """

    images: torch.Tensor
    labels: torch.Tensor
    positions: Mapping[int, torch.Tensor]

    @property
    def clients(self) -> list[int]:
        """Whose copies they are, in order."""
        return list(self.positions)

    @property
    def size(self) -> int:
        """How many images each of them owns."""
        return len(next(iter(self.positions.values())))

    @cached_property
    def all_positions(self) -> torch.Tensor:
        """(copies × size,) one client after the other: what batches count."""
        return torch.cat(list(self.positions.values()))


class Source(Protocol):
    """The lowest part of stacked networks, which knows all images that they are trained on.

    A batch is (copies × length,) rows among the owned images of all copies, one copy after the other.
    """

    learns: bool
    """Whether it has parameters, and wants the gradient in what it hands out."""

    def restart(self, start: torch.Tensor, owned: Holdings) -> None:
        """Begin at the network `start` (dim,)."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(copies, length, …) for the layer above."""

    def backward(self, gradient: torch.Tensor) -> None:
        """Take a step, if it learns."""

    def progress(self, *, out: torch.Tensor) -> None:
        """How far it has come since the start, at its place in `out` (copies, dim)."""


class Album:
    """The images themselves."""

    learns = False

    def __init__(self, copies: int) -> None:
        self._copies = copies
        self._space = Workspace()

    def restart(self, start: torch.Tensor, owned: Holdings) -> None:
        """Nothing is copied: batches are read where the images are."""
        self._owned = owned

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(copies, length, channels, height, width) pixels from -1 to 1."""
        images = self._owned.images
        chosen = self._owned.all_positions[batch]
        pixels = self._space.room("pixels", len(chosen), *images.shape[1:])
        _develop(images.numpy(), chosen.numpy(), _LEVELS, pixels.numpy())
        return pixels.view(self._copies, -1, *images.shape[1:])

    def backward(self, gradient: torch.Tensor) -> None:
        """Images stay as they are."""

    def progress(self, *, out: torch.Tensor) -> None:
        """There is nothing to learn."""


_LEVELS = scaled_(torch.arange(256, dtype=torch.float32)).numpy()
"""What each byte is as a pixel."""


@numba.njit(nogil=True, cache=True)
def _develop(
    images: NDArray[np.uint8],
    chosen: NDArray[np.int64],
    levels: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """`out` (chosen, …): the chosen images' pixels, in one go; torch takes four, and selects byte by byte."""
    for row in range(len(chosen)):
        image, pixels = images[chosen[row]].ravel(), out[row].ravel()
        for i in range(len(image)):
            pixels[i] = levels[image[i]]

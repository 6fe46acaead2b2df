"""Where a step begins: with the images of all copies, from which every batch is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from fedsim.training.stacked.developing import develop
from fedsim.training.stacked.layer import Workspace


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
        images, chosen = self._owned.images, self._owned.all_positions[batch]
        pixels = self._space.room("pixels", len(chosen), images[0].numel())
        develop(images.flatten(1).numpy(), chosen.numpy(), pixels.numpy())
        return pixels.view(self._copies, -1, *images.shape[1:])

    def backward(self, gradient: torch.Tensor) -> None:
        """Images stay as they are."""

    def progress(self, *, out: torch.Tensor) -> None:
        """There is nothing to learn."""

"""The lowest layer of stacked networks: it reads the batches of all copies from the clients' examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from fedsim.tasks.task import StackedTask
from fedsim.training.stacked.layer import Workspace


@dataclass(frozen=True)
class Shards:
    """The examples that the copies are trained on: copy k belongs to a client that owns `size` examples.

    `inputs` (n, *input_shape), as `StackedTask.arranged` gives them, and `targets` (n, …) are those of all
    clients; `positions` maps a client to the rows of its own, (size,).
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    positions: Mapping[int, torch.Tensor]

    @property
    def clients(self) -> list[int]:
        """The clients of the copies, in order."""
        return list(self.positions)

    @property
    def size(self) -> int:
        """The number of examples that each of them owns."""
        return len(next(iter(self.positions.values())))

    @cached_property
    def all_positions(self) -> torch.Tensor:
        """(copies × size,) one client after the other; batches index into it."""
        return torch.cat(list(self.positions.values()))


class InputLayer(ABC):
    """The lowest part of stacked networks, the only one that reads examples.

    A batch is (copies × length,) indices into `Shards.all_positions`, one copy after the other.
    """

    learns: bool
    """Whether it has parameters, and needs the gradient in its outputs."""

    @abstractmethod
    def restart(self, start: torch.Tensor, shards: Shards) -> None:
        """Begin a round with the parameters `start` (dim,)."""

    @abstractmethod
    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(copies, length, …) for the layer above."""

    @abstractmethod
    def backward(self, gradient: torch.Tensor) -> None:
        """Take a step, if it learns."""

    @abstractmethod
    def write_updates(self, *, out: torch.Tensor) -> None:
        """Write the change of its parameters since the start to their entries of `out` (copies, dim)."""


class RawInputs(InputLayer):
    """The inputs themselves, without parameters."""

    learns = False

    def __init__(self, copies: int, task: StackedTask) -> None:
        self._copies, self._task = copies, task
        self._space = Workspace()

    def restart(self, start: torch.Tensor, shards: Shards) -> None:
        """Copies nothing: batches are read from the arrays of all clients."""
        self._shards = shards

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(copies, length, *input_shape) float32."""
        stored, rows = self._shards.inputs, self._shards.all_positions[batch]
        x = self._space.buffer("x", len(rows), stored[0].numel())
        self._task.read_rows(stored.flatten(1).numpy(), rows.numpy(), x.numpy())
        return x.view(self._copies, -1, *stored.shape[1:])

    def backward(self, gradient: torch.Tensor) -> None:
        """Inputs do not learn."""

    def write_updates(self, *, out: torch.Tensor) -> None:
        """There are no parameters."""

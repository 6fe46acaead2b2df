"""What really happened. Only scoring reads it; a linter keeps `attacks` and `analytics` away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsim.files import write_npy


@dataclass(frozen=True)
class Truth:
    """Who took part when, and what each client sent.

    `participation` (rounds, clients) uint8: 1 where the client's update is part of the round's sum.
    `updates` (clients, dim) float32: the mean of a client's updates over its rounds, the G of A = P G;
    a client that never took part has a row of NaN.
    """

    participation: NDArray[np.uint8]
    updates: NDArray[np.float32]

    def save(self, folder: Path) -> None:
        """Two arrays in a folder of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        write_npy(folder / "participation.npy", self.participation)
        write_npy(folder / "updates.npy", self.updates)

    @classmethod
    def load(cls, folder: Path) -> Truth:
        """The truth as `save` left it."""
        return cls(
            participation=np.load(folder / "participation.npy", allow_pickle=False),
            updates=np.load(folder / "updates.npy", mmap_mode="r", allow_pickle=False),
        )


class TruthRecorder:
    """Listens to the trusted aggregation, round by round."""

    def __init__(self, rounds: int, clients: int, dim: int) -> None:
        self._participation = np.zeros((rounds, clients), dtype=np.uint8)
        self._sums = np.zeros((clients, dim), dtype=np.float32)

    def record(self, round_index: int, updates: Mapping[int, NDArray[np.float32]]) -> None:
        """Note whose updates went into a round's sum."""
        for client, update in updates.items():
            self._participation[round_index, client] = 1
            self._sums[client] += update

    def truth(self) -> Truth:
        """Everything noted so far."""
        rounds_of = self._participation.sum(axis=0, dtype=np.float32)[:, None]
        means = np.divide(self._sums, rounds_of, out=np.full_like(self._sums, np.nan), where=rounds_of > 0)
        return Truth(self._participation, means)

"""The truth of a run. Only scoring reads it; a linter keeps `attacks` and `analytics` away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedsim.core.files import npy_header, private_folder, reading, write_npy, written_whole

if TYPE_CHECKING:
    from fedsim.trusted.diary import Diary

_PARTICIPATION = "participation"
_PARTICIPATION_FILE, _UPDATES_FILE = "participation.npy", "updates.npy"


@dataclass(frozen=True)
class Truth:
    """The participation of every client in every round, and its mean update.

    `participation` (rounds, clients) uint8: 1 where the client's update is part of the round's sum.
    `updates` (clients, dim) float32: the mean of a client's updates over its rounds, the G of A = P G;
    a client that never took part has a row of NaN.
    """

    participation: NDArray[np.uint8]
    updates: NDArray[np.float32]

    def save(self, folder: Path) -> None:
        """Two arrays in a folder of their own, which is private."""
        private_folder(folder)
        write_npy(folder / _PARTICIPATION_FILE, self.participation)
        write_npy(folder / _UPDATES_FILE, self.updates)

    @classmethod
    def load(cls, folder: Path) -> Truth:
        """The truth as `save` left it."""
        with reading(folder, "the truth of a run"):
            truth = cls(
                participation=np.load(folder / _PARTICIPATION_FILE, allow_pickle=False),
                updates=np.load(folder / _UPDATES_FILE, mmap_mode="r", allow_pickle=False),
            )
            participation = truth.participation
            if participation.ndim != 2 or participation.dtype != np.uint8 or (participation > 1).any():
                raise ValueError("participation.npy: expected zeros and ones, rounds × clients")
            if truth.updates.ndim != 2 or len(truth.updates) != participation.shape[1]:
                raise ValueError("updates.npy: expected an update for every client")
            return truth


class TruthRecorder:
    """Collects the truth: participation from the trusted aggregation, updates from the devices' diaries."""

    def __init__(self, rounds: int, clients: int, dim: int) -> None:
        self.participation = np.zeros((rounds, clients), dtype=np.uint8)
        """(rounds, clients), zero for rounds that are still to come."""
        self._dim = dim

    def record(self, round_index: int, clients: Iterable[int]) -> None:
        """Note the clients whose updates are in a round's sum."""
        self.participation[round_index, list(clients)] = 1

    def state(self) -> RecordDict:
        """Who took part so far, as a record."""
        return RecordDict({_PARTICIPATION: ArrayRecord({_PARTICIPATION: Array(self.participation)})})

    def load_state(self, state: RecordDict) -> None:
        """Restore what `state` returned."""
        self.participation[:] = state.array_records[_PARTICIPATION][_PARTICIPATION].numpy()

    def truth(self, diaries: Iterable[Diary]) -> Truth:
        """The whole truth, from the diaries of all devices."""
        return Truth(self.participation, np.stack(list(self._updates(diaries))))

    def save(self, folder: Path, diaries: Iterable[Diary]) -> None:
        """What `Truth.save` writes, without a matrix of all updates in memory."""
        private_folder(folder)
        write_npy(folder / _PARTICIPATION_FILE, self.participation)
        with written_whole(folder / _UPDATES_FILE) as temporary, temporary.open("wb") as file:
            file.write(npy_header(np.dtype(np.float32), (self.participation.shape[1], self._dim)))
            for update in self._updates(diaries):
                file.write(update.data)

    def _updates(self, diaries: Iterable[Diary]) -> Iterator[NDArray[np.float32]]:
        """The mean update of every client, (dim,), one after the other."""
        rounds_of = self.participation.sum(axis=0, dtype=np.int64)
        of_client = {diary.client: diary for diary in diaries}
        unknown = np.full(self._dim, np.nan, dtype=np.float32)
        for client, summed in enumerate(rounds_of.tolist()):
            diary = of_client.pop(client, None)
            if diary is not None and diary.rounds != summed:
                raise RuntimeError(f"client {client} sent {diary.rounds} updates, the sums hold {summed}")
            if diary is not None and diary.total is not None and diary.rounds:
                yield diary.total / np.float32(diary.rounds)
            else:
                yield unknown

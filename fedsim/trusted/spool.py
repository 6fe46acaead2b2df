"""The spool: updates after 1, 2, 4, … local epochs from one training, in files, for later trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class Spool:
    """Updates of one model `start`, by client, round and number of local epochs, in their own folder.

    A client that trains for 64 epochs passes through 1, 2, 4, … epochs on its way: with the same seed it sees
    its examples in the same order, however many epochs follow. So trainings that differ only in
    `local_epochs` can share the longest of them. An update that is not in the spool was never computed, or
    started from another model; the trainer computes it as usual. A file has participations × dim × 4 bytes.
    """

    def __init__(self, folder: Path, epochs: Sequence[int]) -> None:
        self.epochs = tuple(sorted(epochs))
        self._files = {number: folder / f"{number}.f32" for number in self.epochs}
        for file in self._files.values():
            file.touch(exist_ok=False)
        self._rows: dict[tuple[int, int], int] = {}
        self._start = np.zeros(0, dtype=np.float32)

    def holds(self, client: int, round_index: int, start: NDArray[np.float32]) -> bool:
        """Whether the spool has the update of this client and round, from this model."""
        return (client, round_index) in self._rows and np.array_equal(start, self._start)

    def write(
        self, client: int, round_index: int, start: NDArray[np.float32], updates: NDArray[np.float32]
    ) -> None:
        """Keep updates (epochs, dim), unless they start from another model than the first ones."""
        if self._start.size == 0:
            self._start = start.copy()
        if not np.array_equal(start, self._start):
            return
        for file, update in zip(self._files.values(), updates, strict=True):
            with file.open("ab") as end:
                end.write(update.tobytes())
        self._rows[client, round_index] = len(self._rows)

    def read(self, client: int, round_index: int, epochs: int) -> NDArray[np.float32]:
        """The update (dim,) after this number of epochs."""
        dim, row = len(self._start), self._rows[client, round_index]
        return np.fromfile(self._files[epochs], dtype=np.float32, count=dim, offset=4 * dim * row)

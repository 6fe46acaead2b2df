"""The public record of a federation: the sums that any server receives, round by round."""

from __future__ import annotations

import csv
import fcntl
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import npy_header, reading, write_json

_ROUND_COLUMNS = ("round", "cohort_size", "weight")
_LAYERS = "layers.json"


@dataclass(frozen=True)
class Transcript:
    """The sums that a server received.

    `aggregates` (rounds, dim) float32, row r the sum of round r's updates, memory-mapped when loaded;
    `cohort_sizes` (rounds,) the number of updates in each sum; `weights` (rounds,) the number of examples,
    NaN for a void round: devices sent updates that could not be summed, and the row is zero.
    `layer_shapes` are the shapes of the tensors of the server's own model, in the order of an update's
    entries.
    """

    aggregates: NDArray[np.float32]
    cohort_sizes: NDArray[np.int64]
    weights: NDArray[np.float64]
    layer_shapes: tuple[tuple[int, ...], ...]

    @property
    def void(self) -> NDArray[np.bool_]:
        """(rounds,) True where devices sent updates that could not be summed."""
        return np.isnan(self.weights)

    @classmethod
    def load(cls, folder: Path) -> Transcript:
        """A finished transcript, as `TranscriptWriter` leaves it."""
        with reading(folder, "a finished transcript"):
            aggregates = np.load(folder / "aggregates.npy", mmap_mode="r", allow_pickle=False)
            with (folder / "rounds.csv").open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            layers = json.loads((folder / _LAYERS).read_text(encoding="utf-8"))["shapes"]
            transcript = cls(
                aggregates=aggregates,
                cohort_sizes=np.array([int(row["cohort_size"]) for row in rows]),
                weights=np.array([float(row["weight"]) for row in rows]),
                layer_shapes=tuple(tuple(map(int, shape)) for shape in layers),
            )
        if len(rows) != len(aggregates):
            raise UserError(
                f"{folder}: {len(rows)} of {len(aggregates)} rounds are there; the run was interrupted"
            )
        return transcript


def rounds_recorded(folder: Path) -> int:
    """The number of complete rounds in a transcript that another process may still be writing."""
    file = folder / "rounds.csv"
    return max(0, len(file.read_text(encoding="utf-8").splitlines()) - 1) if file.exists() else 0


class TranscriptWriter:
    """Grows a transcript on disk, one round at a time, without holding it in memory.

    A round is complete once `rounds.csv` has its line, which is written after the sum. The writer keeps the
    first `keep` rounds of an earlier transcript and drops the rest: the files end up the same as if they had
    been written at once. Only one process at a time may write.
    """

    def __init__(
        self, folder: Path, rounds: int, layer_shapes: Sequence[tuple[int, ...]], *, keep: int = 0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / _LAYERS, {"shapes": [list(shape) for shape in layer_shapes]})
        dim = sum(math.prod(shape) for shape in layer_shapes)
        header = npy_header(np.dtype(np.float32), (rounds, dim))
        self._aggregates = (folder / "aggregates.npy").open("ab")
        self._file = (folder / "rounds.csv").open("a+", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)
        self._round = keep
        self.finite = True
        """Whether all numbers appended so far are finite."""
        try:
            # Processes that are forked from this one do not inherit this kind of lock.
            fcntl.lockf(self._aggregates, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{folder}: another process is writing this transcript") from error
        if keep:
            self._file.seek(0)
            lines = [self._file.readline() for _ in range(1 + keep)]
            _cut(self._file, sum(map(len, lines)), complete=lines[-1].endswith("\n"))
            size = len(header) + keep * dim * np.dtype(np.float32).itemsize
            _cut(self._aggregates, size, complete=self._aggregates.tell() >= size)
        else:
            _cut(self._aggregates, 0)
            self._aggregates.write(header)
            _cut(self._file, 0)
            self._rows.writerow(_ROUND_COLUMNS)

    def append(self, aggregate: NDArray[np.float32], *, cohort_size: int, weight: float) -> None:
        """Record the next round's sum."""
        self._aggregates.write(np.ascontiguousarray(aggregate, dtype=np.float32).data)
        self._aggregates.flush()
        self._rows.writerow((self._round, cohort_size, weight))
        self._file.flush()
        self._round += 1
        self.finite &= bool(np.isfinite(aggregate).all())

    def sync(self) -> None:
        """Return once all appended rounds are safe on the disk."""
        for file in (self._aggregates, self._file):
            file.flush()
            os.fsync(file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._aggregates.close()
        self._file.close()


def _cut(file: IO[Any], size: int, *, complete: bool = True) -> None:
    """Drop everything after the first `size` bytes of a file; `complete`: whether it has that many."""
    if not complete:
        raise UserError(f"{file.name} is shorter than it was: start the run again with --force")
    file.truncate(size)

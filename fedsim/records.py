"""The public record of a federation: the sums that any server receives, round by round."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import npy_header, reading, write_json
from fedsim.core.locks import alone_in

_ROUND_COLUMNS = ("round", "cohort_size", "weight")
_LAYERS = "layers.json"
_AGGREGATES_FILE, _ROUNDS_FILE = "aggregates.npy", "rounds.csv"
_BYTES_AT_A_TIME = 1 << 20
"""Bytes that are read at a time from the rounds that a writer keeps."""


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
            aggregates = np.load(folder / _AGGREGATES_FILE, mmap_mode="r", allow_pickle=False)
            with (folder / _ROUNDS_FILE).open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            layers = json.loads((folder / _LAYERS).read_text(encoding="utf-8"))["shapes"]
            transcript = cls(
                aggregates=aggregates,
                cohort_sizes=np.array([int(row["cohort_size"]) for row in rows]),
                weights=np.array([float(row["weight"]) for row in rows]),
                layer_shapes=tuple(tuple(map(int, shape)) for shape in layers),
            )
            dim = sum(math.prod(shape) for shape in transcript.layer_shapes)
            if aggregates.ndim != 2 or aggregates.dtype != np.float32 or aggregates.shape[1] != dim:
                raise ValueError(f"aggregates.npy is no float32 table of {dim} columns, as {_LAYERS} has it")
            if (transcript.cohort_sizes < 0).any():
                raise ValueError("rounds.csv has a negative cohort size")
        if len(rows) != len(aggregates):
            raise UserError(
                f"{folder}: {len(rows)} of {len(aggregates)} rounds are there; the run was interrupted"
            )
        return transcript


def rounds_recorded(folder: Path) -> int:
    """The number of complete rounds in a transcript that another process may still be writing."""
    file = folder / _ROUNDS_FILE
    return max(0, len(file.read_text(encoding="utf-8").splitlines()) - 1) if file.exists() else 0


class TranscriptWriter:
    """Grows a transcript on disk, one round at a time, without holding it in memory.

    A round is complete once `rounds.csv` has its line, which is written after the sum. The writer keeps the
    first `keep` rounds of an earlier transcript and drops the rest: the files end up the same as if they had
    been written at once. Only one process at a time may write. `digests` are those of the earlier writer
    after the rounds to keep: a file that has changed since is a `UserError`, and is left as it is.
    """

    def __init__(
        self,
        folder: Path,
        rounds: int,
        layer_shapes: Sequence[tuple[int, ...]],
        *,
        keep: int = 0,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        dim = sum(math.prod(shape) for shape in layer_shapes)
        header = npy_header(np.dtype(np.float32), (rounds, dim))
        self._round = keep
        self.finite = True
        """Whether all numbers appended so far are finite."""
        with ExitStack() as opened:
            opened.enter_context(alone_in(folder, create=True))
            for name in (_AGGREGATES_FILE, _ROUNDS_FILE) if keep else ():
                if not (folder / name).is_file():
                    raise UserError(
                        f"{folder / name}: there is no such file: start the run again with --force"
                    )
            write_json(folder / _LAYERS, {"shapes": [list(shape) for shape in layer_shapes]})
            aggregates, lines = (
                opened.enter_context((folder / name).open("a+b")) for name in (_AGGREGATES_FILE, _ROUNDS_FILE)
            )
            self._aggregates, self._lines = _HashedFile(aggregates), _HashedFile(lines)
            if keep:
                expected = digests or {}
                size = len(header) + keep * dim * np.dtype(np.float32).itemsize
                self._aggregates.keep(size, expected.get(_AGGREGATES_FILE))
                lines.seek(0)
                size = sum(len(lines.readline() or b"\n") for _ in range(1 + keep))
                self._lines.keep(size, expected.get(_ROUNDS_FILE))
            else:
                self._aggregates.keep(0)
                self._aggregates.write(header)
                self._lines.keep(0)
                self._lines.write(_csv_line(*_ROUND_COLUMNS))
            self._opened = opened.pop_all()

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file that grows, by name, after the rounds so far."""
        return {_AGGREGATES_FILE: self._aggregates.digest, _ROUNDS_FILE: self._lines.digest}

    def append(self, aggregate: NDArray[np.float32], *, cohort_size: int, weight: float) -> None:
        """Record the next round's sum."""
        self._aggregates.write(np.ascontiguousarray(aggregate, dtype=np.float32).data)
        self._lines.write(_csv_line(self._round, cohort_size, weight))
        self._round += 1
        self.finite &= bool(np.isfinite(aggregate).all())

    def sync(self) -> None:
        """Return once all appended rounds are safe on the disk."""
        for file in (self._aggregates, self._lines):
            file.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


class _HashedFile:
    """A file that grows at its end, and the SHA-256 of all its bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Of the bytes so far."""
        return self._hash.hexdigest()

    def keep(self, size: int, digest: str | None = None) -> None:
        """Drop everything after the first `size` bytes; a `UserError` if they do not have this digest."""
        if self._file.seek(0, os.SEEK_END) < size:
            raise UserError(f"{self._file.name} is shorter than it was: start the run again with --force")
        self._file.seek(0)
        while block := self._file.read(min(_BYTES_AT_A_TIME, size - self._file.tell())):
            self._hash.update(block)
        if digest not in (None, self.digest):
            raise UserError(
                f"{self._file.name} has changed since the run wrote it: restore it, or start the run again "
                "with --force"
            )
        self._file.truncate(size)

    def write(self, content: bytes | memoryview) -> None:
        """Append these bytes; another process sees them at once."""
        self._file.write(content)
        self._file.flush()
        self._hash.update(content)

    def sync(self) -> None:
        """Return once all bytes are safe on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())


def _csv_line(*cells: object) -> bytes:
    line = io.StringIO(newline="")
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()

"""Checkpoints: a federation between two rounds, in one file from which a killed run continues.

Everything that happens in a round is a function of the scenario, the round and the state before it. So a run
that continues from any earlier round ends in the same bytes, and checkpoints need to be cheap rather than
frequent. Each is the whole state in one file that replaces the previous one. That is simpler than tracking
changes, and `Pace` limits its cost to a fixed share of the time.
"""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedsim.core.files import check_expansion, reading, written_whole
from fedsim.flower import records_from_bytes, records_to_bytes
from fedsim.grids.memory import DeviceMemory
from fedsim.records import TranscriptWriter
from fedsim.server.hooks import RoundHook
from fedsim.server.resuming import Resumable

_SERVER, _STRATEGY, _DIGEST = "server", "strategy", "digest"
_TIME_SHARE = 0.01
"""Largest share of the time that goes into writing checkpoints."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a federation after its first `rounds` rounds, `seconds` after its start.

    `model` (dim,) is the server's; `strategy` is what the strategies remember (see `Resumable`); `devices` is
    what each node remembers. A device remembers the sum of its own updates, so only the simulator may read a
    checkpoint. `data` is the fingerprint of the training data. `transcript` holds the digests of the
    transcript's files after these rounds.
    """

    rounds: int
    seconds: float
    model: NDArray[np.float32]
    strategy: RecordDict
    devices: Mapping[int, RecordDict]
    data: str
    transcript: Mapping[str, str]

    @classmethod
    def at_start(cls, model: NDArray[np.float32], data: str) -> Self:
        """No round has run yet."""
        return cls(0, 0.0, model, RecordDict(), {}, data, {})

    def save(self, file: Path) -> None:
        """Write the file whole, one device after the other; return once it is safe on the disk.

        Nobody but its owner may read it.
        """
        server = RecordDict(
            {
                "arrays": ArrayRecord({"model": Array(self.model)}),
                "progress": MetricRecord({"rounds": self.rounds, "seconds": self.seconds}),
                "data": ConfigRecord({"fingerprint": self.data}),
                "transcript": ConfigRecord(dict(self.transcript)),
            }
        )
        named = {_SERVER: server, _STRATEGY: self.strategy} | {str(n): s for n, s in self.devices.items()}
        digest = hashlib.sha256()
        with written_whole(file, private=True) as temporary, temporary.open("wb") as raw:
            with zipfile.ZipFile(raw, "w") as archive:
                for name, records in named.items():
                    content = records_to_bytes(records)
                    archive.writestr(name, content)
                    _add(digest, name, content)
                archive.writestr(_DIGEST, digest.hexdigest())
            raw.flush()
            os.fsync(raw.fileno())

    @classmethod
    def load(cls, file: Path) -> Self:
        """The state as `save` left it; a `UserError` if anything in the file has changed since."""
        with reading(file, "a checkpoint"):
            records, digest = {}, hashlib.sha256()
            with zipfile.ZipFile(file) as archive:
                check_expansion(archive)
                *names, last = archive.namelist()
                for name in names:
                    content = archive.read(name)
                    _add(digest, name, content)
                    records[name] = records_from_bytes(content)
                if last != _DIGEST or archive.read(last).decode() != digest.hexdigest():
                    raise ValueError("its content has changed since the run wrote it")
            server, strategy = records.pop(_SERVER), records.pop(_STRATEGY)
            progress = server.metric_records["progress"]
            return cls(
                rounds=int(progress["rounds"]),  # type: ignore[arg-type]
                seconds=float(progress["seconds"]),  # type: ignore[arg-type]
                model=server.array_records["arrays"]["model"].numpy(),
                strategy=strategy,
                devices={int(node): state for node, state in records.items()},
                data=str(server.config_records["data"]["fingerprint"]),
                transcript={name: str(d) for name, d in server.config_records["transcript"].items()},
            )


def _add(digest: hashlib._Hash, name: str, content: bytes) -> None:
    """Add an entry of the file, with its length, so that no two lists of entries give the same bytes."""
    digest.update(f"{name} {len(content)} ".encode())
    digest.update(content)


class SaveCheckpoints(RoundHook):
    """Saves a checkpoint now and then, and one after `until` rounds.

    `before` is the checkpoint from which the run started. The strategy is the whole one, hooks with a state
    included. The transcript is on the disk before the checkpoint that refers to it.
    """

    def __init__(
        self,
        file: Path,
        before: Checkpoint,
        *,
        until: int,
        strategy: Resumable,
        memory: DeviceMemory,
        transcript: TranscriptWriter,
    ) -> None:
        self._file, self._before, self._until = file, before, until
        self._strategy, self._memory, self._transcript = strategy, memory, transcript
        self._began = time.perf_counter()
        self._pace = Pace()

    def after_round(self, done: int, model: NDArray[np.float32]) -> None:
        """Save a checkpoint if one is due."""
        if not (self._pace.is_due() or done == self._until):
            return
        with self._pace.writing():
            self._transcript.sync()
            Checkpoint(
                rounds=done,
                seconds=self._before.seconds + time.perf_counter() - self._began,
                model=model,
                strategy=self._strategy.state(),
                devices=self._memory.states,
                data=self._before.data,
                transcript=self._transcript.digests,
            ).save(self._file)


class Pace:
    """Says when the next checkpoint is due, so that writing them takes at most a hundredth of the time.

    A kill then loses at most the work of a hundred times as long as writing a checkpoint takes. Only time in
    which this process works counts, not time in which it waits. The first checkpoint is due at once, because
    nobody knows yet how long writing takes.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def is_due(self) -> bool:
        """Whether enough work has been done since the latest checkpoint."""
        return time.process_time() >= self._due

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Measure the block, which writes a checkpoint."""
        began = time.perf_counter()
        yield
        self._due = time.process_time() + (time.perf_counter() - began) / _TIME_SHARE

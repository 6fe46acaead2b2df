"""A federation between two rounds, in a file: what a killed run needs to go on from there.

Everything that happens in a round is a function of the scenario, the round and the state before it, so a
run that goes back to any round ends in the same bytes. Hence checkpoints need not be frequent, only cheap:
each is the whole state in one file that replaces the one before, which is simpler than keeping track of
what has changed, and costs little, because a fixed part of the time is spent on it and no more.
"""

from __future__ import annotations

import math
import os
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedsim.core.files import reading, written_whole
from fedsim.flower import records_from_bytes, records_to_bytes

_SERVER = "server"
_TIME_SHARE = 0.01


@dataclass(frozen=True)
class Checkpoint:
    """The state of a federation after its first `rounds` rounds, `seconds` after its start.

    `model` (dim,) is the server's; `participation` (rounds, clients) who was in the sums so far; `answers`
    (client, start, stop, count or None) what telemetry has collected; `devices` what each node remembers,
    the sum of its own updates included, so nobody but the simulator may read it. The server's strategy has
    no other state. `data` is the fingerprint of the images that everything was trained on.
    """

    rounds: int
    seconds: float
    model: NDArray[np.float32]
    participation: NDArray[np.uint8]
    answers: Sequence[tuple[int, int, int, int | None]]
    devices: Mapping[int, RecordDict]
    data: str

    @classmethod
    def at_start(cls, model: NDArray[np.float32], clients: int, data: str) -> Self:
        """Nothing has happened yet."""
        return cls(0, 0.0, model, np.zeros((0, clients), dtype=np.uint8), (), {}, data)

    def save(self, file: Path) -> None:
        """Write the file whole, one device after the other; return once it is safe on the disk."""
        arrays = ArrayRecord(
            {
                "model": Array(self.model),
                "participation": Array(self.participation),
                "answers": Array(np.array(self.answers, dtype=np.float64).reshape(-1, 4)),
            }
        )
        progress = MetricRecord({"rounds": self.rounds, "seconds": self.seconds})
        data = ConfigRecord({"fingerprint": self.data})
        with written_whole(file) as temporary, temporary.open("wb") as raw:
            with zipfile.ZipFile(raw, "w") as archive:
                server = RecordDict({"arrays": arrays, "progress": progress, "data": data})
                archive.writestr(_SERVER, records_to_bytes(server))
                for node, state in self.devices.items():
                    archive.writestr(str(node), records_to_bytes(state))
            raw.flush()
            os.fsync(raw.fileno())

    @classmethod
    def load(cls, file: Path) -> Self:
        """The state as `save` left it."""
        with reading(file, "a checkpoint"):
            with zipfile.ZipFile(file) as archive:
                records = {name: records_from_bytes(archive.read(name)) for name in archive.namelist()}
            server = records.pop(_SERVER)
            arrays, progress = server.array_records["arrays"], server.metric_records["progress"]
            return cls(
                rounds=int(progress["rounds"]),  # type: ignore[arg-type]
                seconds=float(progress["seconds"]),  # type: ignore[arg-type]
                model=arrays["model"].numpy(),
                participation=arrays["participation"].numpy(),
                answers=[
                    (int(client), int(start), int(stop), None if math.isnan(count) else int(count))
                    for client, start, stop, count in arrays["answers"].numpy().tolist()
                ],
                devices={int(node): state for node, state in records.items()},
                data=str(server.config_records["data"]["fingerprint"]),
            )


class Pace:
    """Says when it is time for the next checkpoint: writing them takes a hundredth of the time, no more.

    A kill then loses the work of a hundred times as long as writing one takes. Only time in which this
    process works counts, not the time in which it waits. The first is due at once, because nobody knows yet
    how long writing takes.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def is_due(self) -> bool:
        """Whether enough has been done since the last one."""
        return time.process_time() >= self._due

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The block writes one."""
        began = time.perf_counter()
        yield
        self._due = time.process_time() + (time.perf_counter() - began) / _TIME_SHARE

"""One training for several numbers of local epochs.

Under a fixed model a client's update depends on the seed, the client and the round, and an update after 64
epochs passes through those after 1, 2, 4, … on its way. So federations that differ in `clients.local_epochs`
alone need one training, the longest. Everything else, from messages and masks to counts and diaries, runs
for each of them as ever, and leaves the same bytes as if each had trained on its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedsim.core.progress import Progress, silent
from fedsim.trusted.spool import Spool
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.runner import train_rounds, train_run
from scenarios.run.scenario import Scenario
from scenarios.run.sections import Trained
from scenarios.run.world import World
from scenarios.sweep.sweep import AFTER_TRAINING, SPOOLED

ROOM = 0.5
"""Part of the free disk that the updates of one training may take: others may be under way beside it."""


def rounds_at_a_time(scenarios: Sequence[Scenario], folder: Path) -> int:
    """For how many rounds a folder's disk has room for the updates that these trainings would share."""
    world = World.prepare(scenarios[0])
    largest = max(1, int(world.schedule.sum(axis=1).max())) * world.model.dim * np.dtype(np.float32).itemsize
    return int(ROOM * shutil.disk_usage(folder).free) // (len(scenarios) * largest)


def train_shared_epochs(
    runs: Sequence[tuple[Scenario, RunDirectory]],
    *,
    at_a_time: int,
    workers: int | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[RunDirectory, Trained]]:
    """Simulate scenarios that differ in their local epochs, the longest first; a result as each is there.

    They go on together, `at_a_time` rounds each. For so long every update is kept in a temporary folder
    beside the first run: participations × dim × 4 bytes for each number of epochs.
    """
    excluded = {**AFTER_TRAINING, "clients": {"local_epochs"}}
    first, *others = (scenario.model_dump(mode="json", exclude=excluded) for scenario, _ in runs)
    if any(other != first for other in others):
        raise ValueError("these scenarios differ in more than their local epochs")
    if runs[0][0].federation.server_model != "fixed":
        raise ValueError("a model that moves takes another way for every number of epochs")
    longest_first = sorted(runs, key=lambda run: -run[0].clients.local_epochs)
    rounds = runs[0][0].federation.rounds
    for end in (*range(at_a_time, rounds, at_a_time), rounds):
        with tempfile.TemporaryDirectory(dir=runs[0][1].path.parent, prefix=SPOOLED) as folder:
            spool = Spool(Path(folder), sorted({scenario.clients.local_epochs for scenario, _ in runs}))
            for scenario, directory in longest_first:
                world, engine = World.prepare(scenario), Inline(workers, spool)
                if end < rounds:
                    train_rounds(world, directory, end, engine=engine)
                else:
                    yield directory, train_run(world, directory, engine=engine, training=progress)

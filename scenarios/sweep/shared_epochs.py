"""One training for several numbers of local epochs.

With a fixed model, an update depends only on the seed, the client and the round. Training for 64 epochs
passes through the updates after 1, 2, 4, … epochs. So federations that differ only in `clients.local_epochs`
need only the longest training. Everything else (messages, masks, counts, diaries) runs for each of them, and
leaves the same bytes as separate trainings.
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

USABLE_DISK = 0.5
"""Fraction of the free disk space for the updates of one training; others may run beside it."""


def rounds_at_a_time(scenarios: Sequence[Scenario], folder: Path) -> int:
    """The number of rounds whose shared updates fit on the folder's disk."""
    world = World.prepare(scenarios[0])
    largest = max(1, int(world.schedule.sum(axis=1).max())) * world.model.dim * np.dtype(np.float32).itemsize
    return int(USABLE_DISK * shutil.disk_usage(folder).free) // (len(scenarios) * largest)


def train_shared_epochs(
    runs: Sequence[tuple[Scenario, RunDirectory]],
    *,
    at_a_time: int,
    workers: int | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[RunDirectory, Trained]]:
    """Simulate scenarios that differ only in their local epochs; yield each result when it is ready.

    All advance together by `at_a_time` rounds, the longest first. During these rounds every update is kept in
    a temporary folder beside the first run: participations × dim × 4 bytes for each number of epochs.
    """
    excluded = {**AFTER_TRAINING, "clients": {"local_epochs"}}
    first, *others = (scenario.model_dump(mode="json", exclude=excluded) for scenario, _ in runs)
    if any(other != first for other in others):
        raise ValueError("these scenarios differ in more than their local epochs")
    if runs[0][0].federation.server_model != "fixed":
        raise ValueError("the server's model must be fixed, so that all numbers of epochs start alike")
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

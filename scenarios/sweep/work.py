"""The work of a sweep: a training that points share, and a point.

Every figure of a sweep comes from these two functions. They run in worker processes and leave files.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import tomli_w

from fedsim.core.files import read_json, write_json, write_text
from fedsim.core.locks import alone_in
from scenarios.cpu import cpu_seconds
from scenarios.planted import Planted
from scenarios.run.checking import checked
from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import Scenario
from scenarios.run.sections import Trained
from scenarios.sweep.code import add_code, code_of

HONEST = "honest.json"
"""Last file of a training: the figures that no attack changes."""


def train_shared(trainings: Sequence[tuple[Scenario, Path]], code: str, fresh: bool) -> None:
    """Simulate trainings that points share, unless they are done; interrupted ones continue.

    Several trainings may differ only in their local epochs. Then they share the longest one, if there is
    enough disk space for its updates. With `fresh`, nothing that other code made is used.
    """
    from scenarios.run.runner import train_run
    from scenarios.run.world import World
    from scenarios.sweep.shared_epochs import rounds_at_a_time, train_shared_epochs

    runs = []
    for scenario, folder in trainings:
        run = RunDirectory(folder)
        if fresh and code_of(folder) != code:
            shutil.rmtree(folder, ignore_errors=True)
        if (folder / HONEST).exists() and run.manifest.file.exists():
            continue
        if not run.checkpoint.exists():
            shutil.rmtree(folder, ignore_errors=True)
            run = RunDirectory.create(folder, replace=False)
        add_code(folder, code)
        runs.append((scenario, run))
    together = rounds_at_a_time([scenario for scenario, _ in runs], runs[0][1].path) if len(runs) > 1 else 0
    if together:
        trained = train_shared_epochs(runs, at_a_time=together)
    else:
        trained = ((run, train_run(World.prepare(scenario), run)) for scenario, run in runs)
    before = cpu_seconds()
    for run, figures in trained:
        # The cost of work that several trainings share is the first one's.
        now = cpu_seconds()
        write_json(run.path / HONEST, figures.spent(now - before).to_json())
        before = now
        run.manifest.write([run.transcript, run.truth, run.history, run.model])
        run.checkpoint.unlink(missing_ok=True)


def run_point(settings: Scenario | Planted, folder: Path, training: str | None, code: str) -> None:
    """Run a point from its beginning; files of an interrupted attempt are deleted first."""
    with alone_in(folder, create=True):
        run = RunDirectory(folder)
        run.clear()
        _run_point(settings, run, training, code)


def _run_point(settings: Scenario | Planted, run: RunDirectory, training: str | None, code: str) -> None:
    folder = run.path
    if isinstance(settings, Planted):
        add_code(folder, code)
        write_text(run.scenario, tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True)))
        write_json(run.result, settings.run().to_json())
        return
    from scenarios.run.runner import attack_run, publish

    # Relative, so that the sweep's folder can be moved.
    shared = Path("../../trainings") / str(training)
    for file in (run.transcript, run.truth, run.history, run.pace, run.model):
        # Trainings of earlier versions have no curves.
        if (folder / shared / file.name).exists():
            file.symlink_to(shared / file.name)
    run.manifest.check_links([run.transcript, run.truth, run.history, run.model])
    add_code(folder, *code_of(folder / shared).split(", "), code)
    file = folder / shared / HONEST
    trained = checked(Trained, read_json(file, "the figures of a training"), file)
    attack_run(settings, run, trained.published(publish(settings, run)))

"""Running a sweep: one folder, a run directory per point, and a training that points share.

    runs/NAME/
      sweep.toml           the file, as last run
      points/NAME/         a run directory per point; its transcript and truth are links to …
      trainings/NAME/      … what points have in common that differ only in what follows the training
      sweep.csv            one row per point; sweep.parquet too, if pyarrow is installed
      sweep.html           the table and a picture of one figure

Points and trainings say in code.txt which code made them. A point is done when its last file stands, and
files are written whole. So a sweep that was killed goes on where it stopped, and a changed file runs the
points that are new.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomli_w

from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.files import read_json, write_json, write_text, writing
from fedsim.core.progress import Progress, silent
from scenarios.cpu import cpu_seconds
from scenarios.planted import Planted
from scenarios.run.directory import RESULT, RunDirectory
from scenarios.run.scenario import Scenario
from scenarios.sweep.code import add_code, code_of, this_code
from scenarios.sweep.pool import InProcess, Pool
from scenarios.sweep.sweep import SPOOLED, Point, Sweep

HONEST = "honest.json"
"""Last file of a training: the figures that no attack changes."""


@dataclass(frozen=True)
class SweepDirectory:
    """Where the files of a sweep are."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> SweepDirectory:
        """The folder of this or an earlier state of a sweep, or a new one."""
        directory = cls(path)
        is_sweep = directory.file.exists() or (path / "points").is_dir()
        if path.exists() and not is_sweep and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not a sweep: choose another --out")
        with writing(path):
            (path / "points").mkdir(parents=True, exist_ok=True)
            (path / "trainings").mkdir(exist_ok=True)
        return directory

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else works in this folder during the block; a `UserError` if somebody does."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"--out {self.path}: another command works there: wait for it, or choose another --out"
                ) from error
            for leftover in (self.path / "trainings").glob(f"{SPOOLED}*"):
                shutil.rmtree(leftover)
            yield

    @property
    def file(self) -> Path:
        """The sweep file as last run."""
        return self.path / "sweep.toml"

    @property
    def table(self) -> Path:
        """One row per point."""
        return self.path / "sweep.csv"

    @property
    def page(self) -> Path:
        """One self-contained page, which links to the points' reports."""
        return self.path / "sweep.html"

    def point(self, point: Point) -> RunDirectory:
        """The folder of a point."""
        return RunDirectory(self.path / "points" / point.name)

    def training(self, name: str) -> RunDirectory:
        """The folder of a training."""
        return RunDirectory(self.path / "trainings" / name)

    def done(self, point: Point, *, fresh: bool = False) -> bool:
        """Whether the point's last file stands; a `fresh` one was made by the code that runs.

        Whoever attacked the point with other settings since has made it another one.
        """
        run = self.point(point)
        last = run.result if isinstance(point.settings, Planted) else run.report
        return last.exists() and point.is_of(run.scenario) and (not fresh or code_of(run.path) == this_code())


@dataclass(frozen=True)
class PointResult:
    """What became of a point: its figures, as `result.json` has them, or the reason why there are none.

    Without either it has not been run. `code` is what made it.
    """

    point: Point
    figures: Mapping[str, Any] | None
    reason: str = ""
    code: str = ""


def check_worlds(sweep: Sweep, directory: Path, progress: Progress = silent, *, fresh: bool = False) -> None:
    """Find the mistakes that only data reveal, in every training and inference that is still to come."""
    from scenarios.run.world import World

    places = SweepDirectory(directory)
    left = [point for point in sweep.points if not places.done(point, fresh=fresh)]
    settings = [(point.training, point.settings) for point in left if isinstance(point.settings, Scenario)]
    # Of an attack it is what inference asks of the data that can be wrong.
    kinds = {(training, s.attack.inference, s.attack.auxiliary_images): s for training, s in settings}
    for number, scenario in enumerate(kinds.values()):
        progress(number, len(kinds))
        try:
            World.prepare(scenario)
        except UserError as error:
            raise UserError(f"{scenario.title}: {error}") from error


def run_sweep(
    sweep: Sweep,
    directory: SweepDirectory,
    pool: Pool | None = None,
    progress: Progress = silent,
    *,
    fresh: bool = False,
) -> list[PointResult]:
    """Run every point that is not done, and read all of them, in the order of the sweep.

    A fault in a point becomes its reason; a point with a reason is tried again by the next call. With `fresh`
    what other code made is not done; it stands until its point is begun.
    """
    write_text(directory.file, tomli_w.dumps(sweep.file.model_dump(exclude_none=True)))
    run = _Run(directory, pool or InProcess(), progress, fresh=fresh)
    run.to_the_end(sweep)
    return read_results(sweep, directory, run.reasons)


def read_results(
    sweep: Sweep, directory: SweepDirectory, reasons: Mapping[str, str] = MappingProxyType({})
) -> list[PointResult]:
    """What there is of every point, in the order of the sweep; nothing is run."""
    return [
        PointResult(
            point, read_json(directory.point(point).result, RESULT), code=code_of(directory.point(point).path)
        )
        if directory.done(point)
        else PointResult(point, None, reasons.get(point.name, ""))
        for point in sweep.points
    ]


@dataclass(frozen=True)
class _Task:
    """A piece of work for a worker, for one point, or for all the points that share a training."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]
    points: list[Point]


class _Run:
    """The work under way. Points come before new trainings, so that few trainings stand unused."""

    def __init__(self, directory: SweepDirectory, pool: Pool, progress: Progress, *, fresh: bool) -> None:
        self._directory = directory
        self._pool = pool
        self._progress = progress
        self._fresh = fresh
        self._queue: deque[_Task] = deque()
        self._running: dict[Future[None], _Task] = {}
        self.reasons: dict[str, str] = {}
        """Why points failed, by name."""

    def to_the_end(self, sweep: Sweep) -> None:
        """Run all points that are not done."""
        waiting: dict[str | None, list[Point]] = {}
        for point in sweep.points:
            if not self._directory.done(point, fresh=self._fresh):
                waiting.setdefault(point.training, []).append(point)
        for points in self._trained_at_once(sweep, waiting):
            if points[0].training is None:
                self._queue.extend(self._attacks(points))
            else:
                firsts = {point.training: point for point in reversed(points)}
                trainings = [
                    (point.settings, self._directory.training(str(name)).path.absolute())
                    for name, point in firsts.items()
                ]
                self._queue.append(_Task(train_shared, (trainings, this_code(), self._fresh), points))
        done, total = len(sweep.points) - sum(map(len, waiting.values())), len(sweep.points)
        self._progress(done, total)
        for task, reason in self._finished():
            if task.function is train_shared and not reason:
                self._queue.extendleft(reversed(self._attacks(task.points)))
                continue
            for point in tuple(task.points):
                done += 1
                waiting[point.training].remove(point)
                if reason:
                    self.reasons[point.name] = reason
                if not sweep.file.keep_runs:
                    self._forget(point, last=not waiting[point.training])
            self._progress(done, total)

    @staticmethod
    def _trained_at_once(sweep: Sweep, waiting: Mapping[str | None, list[Point]]) -> list[list[Point]]:
        """The points by training; with `share_epochs` by what trainings of different lengths share."""
        if not sweep.file.share_epochs:
            return [list(points) for points in waiting.values()]
        families: dict[str | None, list[Point]] = {}
        for points in waiting.values():
            families.setdefault(points[0].longer_training, []).extend(points)
        return list(families.values())

    def _attacks(self, points: Iterable[Point]) -> list[_Task]:
        return [
            _Task(
                run_point,
                (point.settings, self._directory.point(point).path.absolute(), point.training, this_code()),
                [point],
            )
            for point in points
        ]

    def _finished(self) -> Iterator[tuple[_Task, str]]:
        """Tasks as they end, with the reason if they failed; what is queued meanwhile is run too."""
        while self._queue or self._running:
            while self._queue and len(self._running) < self._pool.number:
                task = self._queue.popleft()
                self._running[self._pool.submit(task.function, *task.arguments)] = task
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                yield self._running.pop(future), _reason(future)

    def _forget(self, point: Point, *, last: bool) -> None:
        """Drop what takes room and can be made again: figures and reports stay."""
        run = self._directory.point(point)
        for file in (run.transcript, run.truth, run.counts, run.recovery):
            file.unlink(missing_ok=True)
        shutil.rmtree(run.inference, ignore_errors=True)
        if last and point.training is not None:
            shutil.rmtree(self._directory.training(point.training).path, ignore_errors=True)


def _reason(future: Future[None]) -> str:
    """Why a piece of work failed, in one line; empty if it did not."""
    error = future.exception()
    if error is None:
        return ""
    if isinstance(error, BrokenExecutor):
        raise RunFailedError(
            "a worker process was killed, perhaps for want of memory; the same command goes on from here"
        ) from error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise RunFailedError(
            f"{error.strerror}: points that were done are kept; make room, and the same command goes on"
        ) from error
    told = isinstance(error, UserError | RunFailedError)
    return " ".join((str(error) if told else f"{type(error).__name__}: {error}").split())


def train_shared(trainings: Sequence[tuple[Scenario, Path]], code: str, fresh: bool) -> None:
    """Simulate what several points share, unless it is there already, from its checkpoint if there is one.

    Several trainings differ in their local epochs only: the longest of them is done, and the others follow,
    if there is room for what they share. A `fresh` one takes nothing that other code than `code` left.
    """
    from scenarios.run.runner import train_run
    from scenarios.run.world import World
    from scenarios.sweep.shared_epochs import rounds_at_a_time, train_shared_epochs

    runs = []
    for scenario, folder in trainings:
        run = RunDirectory(folder)
        if fresh and code_of(folder) != code:
            shutil.rmtree(folder, ignore_errors=True)
        if (folder / HONEST).exists():
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
    for run, honest in trained:
        # What several share is the cost of the first that is there.
        now = cpu_seconds()
        honest["simulation"]["cpu_seconds"], before = now - before, now
        write_json(run.path / HONEST, honest)
        run.checkpoint.unlink(missing_ok=True)


def run_point(settings: Scenario | Planted, folder: Path, training: str | None, code: str) -> None:
    """A point from its beginning: what an interrupted attempt left in its folder goes first."""
    shutil.rmtree(folder, ignore_errors=True)
    run = RunDirectory.create(folder, replace=False)
    if isinstance(settings, Planted):
        add_code(folder, code)
        write_text(run.scenario, tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True)))
        write_json(run.result, settings.run())
        return
    from scenarios.run.runner import attack_run, publish

    # Relative, so that the sweep's folder can be moved.
    shared = Path("../../trainings") / str(training)
    for file in (run.transcript, run.truth):
        file.symlink_to(shared / file.name)
    add_code(folder, *code_of(folder / shared).split(", "), code)
    honest = read_json(folder / shared / HONEST, "the figures of a training")
    attack_run(settings, run, {**honest, "analytics": publish(settings, run)})

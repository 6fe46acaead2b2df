"""Running a sweep: every point that is not done, trainings before the points that share them.

A point is done when its last file exists, and files are written whole. So a killed sweep continues where it
stopped, and a changed sweep file runs only the points that are new.
"""

from __future__ import annotations

import errno
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomli_w

from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.files import write_text
from fedsim.core.progress import Progress, silent
from scenarios.run.result import PlantedResult, Result
from scenarios.run.scenario import Scenario
from scenarios.sweep.code import code_for, code_of, point_code, training_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.pool import InProcess, Pool
from scenarios.sweep.sweep import Point, Sweep
from scenarios.sweep.work import run_point, train_shared


@dataclass(frozen=True)
class PointResult:
    """The figures of a point, or the reason why it failed; neither if it has not been run.

    `code` is the code that made it.
    """

    point: Point
    figures: Result | PlantedResult | None
    reason: str = ""
    code: str = ""

    @property
    def other_code(self) -> str:
        """The code that made it, if that is not the code that would make it now; else nothing."""
        return "" if self.code == code_for(self.point.settings) else self.code


def check_worlds(sweep: Sweep, directory: Path, progress: Progress = silent, *, fresh: bool = False) -> None:
    """Find the mistakes that only the data reveal, in all points that are still to run."""
    from scenarios.run.world import World

    folder = SweepDirectory(directory)
    left = [point for point in sweep.points if not folder.done(point, fresh=fresh)]
    settings = [(point.training, point.settings) for point in left if isinstance(point.settings, Scenario)]
    # Of an attack, only inference depends on the data.
    kinds = {(training, s.attack.inference, s.attack.auxiliary_images): s for training, s in settings}
    for number, scenario in enumerate(kinds.values()):
        progress(number, len(kinds))
        try:
            World.prepare(scenario)
        except UserError as error:
            raise UserError(f"{scenario.title}: {error}") from error
    progress(len(kinds), len(kinds))


def run_sweep(
    sweep: Sweep,
    directory: SweepDirectory,
    pool: Pool | None = None,
    progress: Progress = silent,
    *,
    fresh: bool = False,
) -> list[PointResult]:
    """Run every point that is not done, and read all points, in the order of the sweep.

    A point that fails gets a reason, and the next call tries it again. With `fresh`, points that other code
    made count as not done; their files stay until they run.
    """
    write_text(directory.file, tomli_w.dumps(sweep.file.content()))
    run = _Run(directory, pool or InProcess(), progress, fresh=fresh)
    run.to_the_end(sweep)
    return read_results(sweep, directory, run.reasons)


def read_results(
    sweep: Sweep, directory: SweepDirectory, reasons: Mapping[str, str] = MappingProxyType({})
) -> list[PointResult]:
    """Read all points without running any, in the order of the sweep."""
    return [
        PointResult(point, directory.result(point), code=code_of(directory.point(point).path))
        if directory.done(point)
        else PointResult(point, None, reasons.get(point.name, ""))
        for point in sweep.points
    ]


@dataclass(frozen=True)
class _Task:
    """Work for one worker: a point, or a training for all the points that share it."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]
    points: list[Point]


class _Run:
    """The schedule of a sweep. Points come before new trainings, so that few trainings wait on disk."""

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
                code = training_code(points[0].settings)
                self._queue.append(_Task(train_shared, (trainings, code, self._fresh), points))
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
        """Groups of points with the same training; with `share_epochs`, of any number of epochs."""
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
                (
                    point.settings,
                    self._directory.point(point).path.absolute(),
                    point.training,
                    point_code(point.settings),
                ),
                [point],
            )
            for point in points
        ]

    def _finished(self) -> Iterator[tuple[_Task, str]]:
        """Yield tasks as they end, with a reason if they failed. The caller may queue more."""
        while self._queue or self._running:
            while self._queue and len(self._running) < self._pool.number:
                task = self._queue.popleft()
                self._running[self._pool.submit(task.function, *task.arguments)] = task
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                yield self._running.pop(future), _reason(future)

    def _forget(self, point: Point, *, last: bool) -> None:
        """Delete links to the training, and large files that can be made again; figures and reports stay."""
        run = self._directory.point(point)
        links = [file for file in run.path.glob("*") if file.is_symlink()]
        for file in (*links, run.counts, run.recovery):
            file.unlink(missing_ok=True)
        shutil.rmtree(run.inference, ignore_errors=True)
        if last and point.training is not None:
            shutil.rmtree(self._directory.training(point.training).path, ignore_errors=True)


def _reason(future: Future[None]) -> str:
    """Why a task failed, in one line; empty if it did not."""
    error = future.exception()
    if error is None:
        return ""
    if isinstance(error, BrokenExecutor):
        raise RunFailedError(
            "a worker process was killed, perhaps for lack of memory; run the same command to continue"
        ) from error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise RunFailedError(
            f"{error.strerror}: finished points are kept; free some space, then run the same command"
        ) from error
    told = isinstance(error, UserError | RunFailedError)
    return " ".join((str(error) if told else f"{type(error).__name__}: {error}").split())

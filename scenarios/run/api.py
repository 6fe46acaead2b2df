"""Runs from Python: `fedsim.run`, `fedsim.attack` and `fedsim.load_run`; the commands call the same code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.disaggregation import Recovery
from fedsim.core.errors import UserError
from fedsim.core.locks import alone_in
from scenarios.api_results import Findings, html_table
from scenarios.console import progress_bars
from scenarios.run import runner
from scenarios.run.attack_process import attack_process
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import ENGINES, INLINE, Runtime
from scenarios.run.figure_names import figures_of
from scenarios.run.overrides import Overrides, read_overrides
from scenarios.run.result import Result
from scenarios.run.scenario import Scenario, find_scenario, load_scenario
from scenarios.run.simulate import obstacle_to_resuming
from scenarios.run.trackers import tracked
from scenarios.run.world import World
from scenarios.summary import result_rows
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Source = str | Path | Mapping[str, Any] | Scenario
"""A scenario: a file, a name from the library, a mapping with its sections, or the object."""


@dataclass(frozen=True)
class Run(Findings):
    """A finished run: its folder and its figures.

    `result` holds every figure of `result.json` as typed sections, such as
    `run.result.disaggregation.exact_fraction`.
    """

    folder: Path
    result: Result

    @property
    def report(self) -> Path:
        """The page of the run."""
        return RunDirectory(self.folder).report

    @cached_property
    def scenario(self) -> Scenario:
        """Every setting of the run."""
        return load_scenario(RunDirectory(self.folder).scenario)

    @cached_property
    def recovery(self) -> Recovery:
        """What the attack recovered: a column, an outcome and an update per client."""
        return Recovery.load(RunDirectory(self.folder).recovery)

    def rows(self) -> Sequence[Row]:
        """One row: every figure by its dotted name, such as `disaggregation.exact_fraction`."""
        return [figures_of(self.result)]

    def draw(self, axes: Axes) -> None:
        """Guess, attack and ceiling: participations that were found, and columns that are exactly right."""
        found, base, best = (
            self.result.disaggregation,
            self.result.disaggregation.baselines,
            self.result.disaggregation.ceiling,
        )
        names = ("participations found", "columns exactly right")
        series = {
            "guess": (base.counts_only_ones_found, base.counts_only_exact_fraction),
            "attack": (found.ones_found, found.exact_fraction),
            "ceiling": (best.ones_found, best.exact_fraction) if best else (None, None),
        }
        for place, (label, values) in enumerate(series.items()):
            known = [(row, value) for row, value in enumerate(values) if value is not None]
            axes.bar([row + 0.27 * (place - 1) for row, _ in known], [v for _, v in known], 0.25, label=label)
        axes.set(xticks=range(len(names)), xticklabels=names, ylim=(0, 1.05))
        # Above the bars, where it covers none of them.
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)

    def _repr_html_(self) -> str:
        rows = [
            {"": name, "value": value, "beside it": note} for name, value, note in result_rows(self.result)
        ]
        return html_table(rows, title=self.result.title, page=self.report)


@dataclass(frozen=True)
class PlannedRun:
    """A run that has passed every check and has written nothing yet."""

    world: World
    folder: Path
    engine: Runtime

    @classmethod
    def of(
        cls,
        scenario: Source,
        overrides: Overrides = (),
        *,
        out: str | Path | None = None,
        engine: Runtime = INLINE,
        attack_follows: bool = False,
    ) -> PlannedRun:
        """Check the scenario and prepare its world; any mistake is a `UserError`.

        If an attack in this process follows, its own process starts beside the preparation.
        """
        settings = load_scenario(scenario, overrides)
        engine.check()
        folder = _folder(scenario, out)
        if attack_follows:
            attack_process(settings.attack, folder)
        return cls(World.prepare(settings), folder, engine)

    @property
    def obstacle_to_resuming(self) -> str | None:
        """Why the run could not continue after a kill, in one line; None if it could."""
        return obstacle_to_resuming(self.world, self.engine)

    @property
    def is_finished(self) -> bool:
        """Whether the folder already holds a finished run."""
        return RunDirectory(self.folder).is_finished

    def run(
        self,
        *,
        force: bool = False,
        resume: bool = False,
        progress: bool = True,
        track: Sequence[str] = (),
    ) -> Run:
        """Simulate, attack, score and report. A run that is finished already is only read with `resume`."""
        if resume and force:
            raise UserError("--resume continues a run and --force replaces it: choose one")
        if resume and (obstacle := self.obstacle_to_resuming) is not None:
            raise UserError(f"--resume: {obstacle}")
        with one_thread(), alone_in(self.folder, create=True):
            directory = (
                RunDirectory.resume(self.folder, self.world.scenario.to_toml())
                if resume
                else RunDirectory.create(self.folder, replace=force)
            )
            if resume and directory.is_finished:
                return Run(self.folder, runner.read_result(directory))
            with (
                nullcontext() if resume else directory.kept_unless_refused(),
                tracked(track, self.world.scenario, directory) as listeners,
                progress_bars(shown=progress) as bar,
            ):
                result = runner.run_scenario(
                    self.world,
                    directory,
                    engine=self.engine,
                    training=bar("training"),
                    solving=bar("solving"),
                    inferring=bar,
                    listeners=listeners,
                )
        return Run(self.folder, result)


def run(
    scenario: Source,
    *,
    out: str | Path | None = None,
    overrides: Overrides = (),
    engine: str = INLINE.name,
    workers: int | None = None,
    force: bool = False,
    resume: bool = False,
    progress: bool = True,
    track: Sequence[str] = (),
) -> Run:
    """Run a scenario end to end: simulate, attack, score, report. As `fedsim run` does, with the same files.

    `out` is the folder of the run, by default `runs/NAME` with the scenario's file name. `overrides` change
    settings by dotted key, such as `{"seed": 8, "attack.solver": "highs"}`. `force` replaces the run in the
    folder, `resume` continues it. Without `progress` nothing is printed. `track` names tools that
    get the training curves, too: `tensorboard`, `mlflow`, `wandb`. A mistake is a `UserError`.
    """
    plan = PlannedRun.of(
        scenario, overrides, out=out, engine=engine_named(engine, workers), attack_follows=True
    )
    return plan.run(force=force, resume=resume, progress=progress, track=track)


def attack(
    run: str | Path | Run,
    overrides: Overrides = (),
    *,
    out: str | Path | None = None,
    force: bool = False,
    progress: bool = True,
) -> Run:
    """Attack a finished run again, without training; only settings of `attack` can change.

    With `out`, the run is copied there and attacked in its new folder. Otherwise another attack replaces the
    one in the folder, if `force` says so.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    changes = read_overrides(overrides)
    for change in changes:
        if not change.key.startswith("attack"):
            raise UserError(f"{change.said}: only attack.* can change after the training")
    with one_thread(), alone_in(folder), progress_bars(shown=progress) as bar:
        directory = RunDirectory.open(folder)
        before = load_scenario(directory.scenario)
        # The title is that of the training. It tells nothing about the attack.
        settings = load_scenario(directory.scenario, overrides).model_copy(update={"title": before.title})
        honest = runner.honest_part(directory)
        if out is None:
            if settings != before and not force:
                raise UserError(
                    f"{folder} holds the result of another attack: choose --out for a copy, "
                    "or add --force to replace it"
                )
            result = runner.attack_run(settings, directory, honest, solving=bar("solving"), inferring=bar)
            return Run(folder, result)
        if folder.resolve() in Path(out).resolve().parents:
            raise UserError(f"--out {out}: lies in the run that is attacked: choose a folder beside it")
        with alone_in(Path(out), create=True):
            copy = RunDirectory.create(Path(out), replace=force)
            with copy.kept_unless_refused():
                directory.copy_to(copy)
                bars: dict[str, Any] = {"solving": bar("solving"), "inferring": bar}
                result = runner.attack_run(settings, copy, honest, others=[folder], **bars)
            return Run(copy.path, result)


def load_run(folder: str | Path) -> Run:
    """A finished run; a `UserError` if the folder holds none, or if its files have changed since."""
    directory = RunDirectory.open(Path(folder), attacked=True)
    return Run(directory.path, runner.read_result(directory))


def engine_named(name: str, workers: int | None = None) -> Runtime:
    """The engine of that name; a `UserError` if there is none."""
    if name not in ENGINES:
        raise UserError(f"--engine {name}: expected {' or '.join(ENGINES)}")
    engine = ENGINES[name]()
    return engine if workers is None else engine.with_workers(workers)


def _folder(scenario: Source, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(scenario, str | Path):
        return Path("runs") / find_scenario(str(scenario)).stem
    raise UserError("--out: expected a folder, because this scenario has no file name")

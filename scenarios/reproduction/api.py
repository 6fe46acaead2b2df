"""The paper's tables and figures from Python: `fedsim.reproduce`; the command calls the same code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.core.errors import UserError
from scenarios.api_results import Findings, html_table
from scenarios.console import progress_bars
from scenarios.reproduction.cost import cheap_first
from scenarios.reproduction.experiment import Budget, Experiment, experiments
from scenarios.reproduction.outcome import Outcome
from scenarios.reproduction.page import write_outcome
from scenarios.sweep.api import at_work
from scenarios.sweep.run import PointResult, check_worlds, run_sweep
from scenarios.sweep.sweep import Sweep
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = "cells"
"""The folder of the points, below that of the tables."""


@dataclass(frozen=True)
class Reproduction(Findings):
    """One table or figure of the paper, ours beside theirs; `failed` points say why, `files` were written."""

    outcome: Outcome
    failed: tuple[str, ...]
    files: tuple[Path, ...]

    def rows(self) -> Sequence[Row]:
        """A row per cell: its keys, our value, the paper's, and how it was made."""
        return self.outcome.rows()

    def draw(self, axes: Axes) -> None:
        """Our value of every cell over the paper's; on the line they are equal."""
        pairs = [(c.paper, c.ours) for c in self.outcome.cells if c.ours is not None and c.paper is not None]
        axes.plot([theirs for theirs, _ in pairs], [ours for _, ours in pairs], "o", alpha=0.6)
        axes.axline((0, 0), slope=1, color="grey", lw=1)
        axes.set(xlabel="the paper's", ylabel="ours", title=self.outcome.experiment.file.title)

    def _repr_html_(self) -> str:
        header, lines = self.outcome.table()
        rows = [dict(zip(header, line, strict=True)) for line in lines]
        page = next((file for file in self.files if file.suffix == ".html"), None)
        return html_table(rows, title=f"{self.outcome.experiment.file.title} (ours / the paper's)", page=page)


def reproduce(
    *names: str,
    budget: str | None = None,
    only: Sequence[str] = (),
    out: str | Path = "runs/paper",
    data: str | Path | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> dict[str, Reproduction]:
    """Reproduce tables and figures of the paper by name, as `fedsim reproduce NAME…` does.

    `budget` is `quick` (minutes, the default) or `full` (the paper's whole grid, the default with `only`).
    Finished cells are kept in `out`.
    """
    if not names:
        raise UserError(f"expected a name: {', '.join(e.name for e in experiments())}")
    plans = planned(names, budget=budget, only=only, data=data)
    found = reproductions(plans, Path(out), workers, fresh=fresh, progress=progress)
    return {reproduction.outcome.experiment.name: reproduction for reproduction in found}


def planned(
    names: Sequence[str], *, budget: str | None, only: Sequence[str], data: str | Path | None
) -> list[tuple[Experiment, Sweep]]:
    """The experiments of these names, all if there are none, with the points to run."""
    if budget is not None and budget not in list(Budget):
        raise UserError(f"--budget {budget}: expected {' or '.join(Budget)}")
    if only and not names:
        raise UserError(f"--only {only[0]}: also give the NAME of a table or figure")
    wanted = Budget(budget or ("full" if only else "quick"))
    return [(e, e.only(e.budget(wanted), only)) for e in experiments(names, with_data(data))]


def with_data(data: str | Path | None) -> dict[str, str]:
    """The settings that name the data of the federations."""
    return {} if data is None else {"data.path": str(data)}


def reproductions(
    plans: Sequence[tuple[Experiment, Sweep]],
    folder: Path,
    workers: int | None,
    *,
    fresh: bool = False,
    progress: bool = True,
) -> Iterator[Reproduction]:
    """Check all experiments, then run them in turn, cheap points first; yield each when it is written."""
    cells = folder / CELLS
    with one_thread(), progress_bars(shown=progress) as bar:
        for _, plan in plans:
            check_worlds(plan, cells, bar("checking"), fresh=fresh)
        with at_work(cells, workers) as (directory, pool):
            for experiment, plan in plans:
                ordered = replace(plan, points=tuple(cheap_first(plan.points)))
                try:
                    results = run_sweep(ordered, directory, pool, bar(experiment.name), fresh=fresh)
                except KeyboardInterrupt:
                    write_outcome(Outcome.read(experiment, directory), folder)
                    raise
                outcome = Outcome.read(experiment, directory)
                yield Reproduction(outcome, _failures(results), tuple(write_outcome(outcome, folder)))


def _failures(results: Sequence[PointResult]) -> tuple[str, ...]:
    return tuple(result.reason for result in results if result.reason)

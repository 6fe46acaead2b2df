"""Sweeps from Python: `fedsim.sweep`; the command calls the same code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.core.files import write_text
from scenarios.api_results import Findings, html_table
from scenarios.console import progress_bars
from scenarios.run.overrides import Overrides
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.page import draw_curves, render_sweep
from scenarios.sweep.pool import Pool, local_pool, ray_pool
from scenarios.sweep.run import PointResult, check_worlds, run_sweep
from scenarios.sweep.sweep import Sweep
from scenarios.sweep.table import tidy, write_table
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class SweepResult(Findings):
    """A sweep that has run: its folder, its plan, and the figures or the failure of every point."""

    folder: Path
    plan: Sweep
    results: tuple[PointResult, ...]
    tables: tuple[Path, ...]

    @property
    def page(self) -> Path:
        """The page of the sweep."""
        return SweepDirectory(self.folder).page

    def rows(self) -> Sequence[Row]:
        """A row per point: its values, every figure by dotted name, and why it failed."""
        return tidy(self.plan, self.results)

    def draw(self, axes: Axes) -> None:
        """The sweep's figure over its first key, with a line for every setting of the others."""
        draw_curves(axes, self.plan, self.rows())

    def _repr_html_(self) -> str:
        shown = ("point", *self.plan.keys, self.plan.file.figure, "reason")
        rows = [{name: row.get(name) for name in shown} for row in self.rows()]
        return html_table(rows, title=self.plan.file.title, page=self.page)


def sweep(
    file: str | Path,
    *,
    out: str | Path | None = None,
    overrides: Overrides = (),
    workers: int | None = None,
    ray: bool = False,
    fresh: bool = False,
    progress: bool = True,
) -> SweepResult:
    """Run every combination of the values in a sweep file, as `fedsim sweep` does; finished points are kept.

    `out` is the folder of the sweep, by default `runs/NAME`. `overrides` change settings of the base.
    """
    path = Path(file)
    plan = Sweep.load(path, overrides)
    folder = Path(out) if out is not None else Path("runs") / path.stem
    with one_thread(), progress_bars(shown=progress) as bar:
        check_worlds(plan, folder, bar("checking"), fresh=fresh)
        with at_work(folder, workers, ray=ray) as (directory, pool):
            results = run_sweep(plan, directory, pool, bar("points"), fresh=fresh)
    written = write_table(tidy(plan, results), directory.table)
    write_text(directory.page, render_sweep(plan, results, directory))
    return SweepResult(folder, plan, tuple(results), tuple(written))


@contextmanager
def at_work(folder: Path, workers: int | None, *, ray: bool = False) -> Iterator[tuple[SweepDirectory, Pool]]:
    """Start the worker pool and lock the sweep folder; a pool that does not start leaves no folder."""
    with ray_pool() if ray else local_pool(workers or os.cpu_count() or 1) as ready:
        directory = SweepDirectory.open(folder)
        with directory.alone():
            yield directory, ready

"""The `fedsim sweep` command."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.interruptions import this_command, told, unwound_by_sigterm

if TYPE_CHECKING:
    from scenarios.sweep.directory import SweepDirectory
    from scenarios.sweep.pool import Pool

BaseSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the base."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, max=4096, help="Worker processes; one per core by default.")
]
Ray = Annotated[bool, typer.Option("--ray", help="Use a Ray cluster instead of local processes.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run points again that other code made (see code.txt).")]
Json = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep file (docs/sweeps.md).")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the sweep; runs/NAME by default.")
    ] = None,
    overrides: BaseSet = None,
    workers: Workers = None,
    ray: Ray = False,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run every combination of the values in a file; an interrupted sweep continues."""
    from scenarios.sweep.sweep import Sweep

    plan = Sweep.load(file, overrides or ())
    folder = out or Path("runs") / file.stem

    from fedsim.core.files import write_text
    from scenarios.console import progress_bars
    from scenarios.sweep.code import other_code
    from scenarios.sweep.page import render_sweep
    from scenarios.sweep.run import check_worlds, run_sweep
    from scenarios.sweep.table import tidy, write_table

    with interruptible(), progress_bars() as bar:
        check_worlds(plan, folder, bar("checking"), fresh=fresh)
        with at_work(folder, workers, ray=ray) as (directory, pool):
            results = run_sweep(plan, directory, pool, bar("points"), fresh=fresh)
    rows = tidy(plan, results)
    written = write_table(rows, directory.table)
    write_text(directory.page, render_sweep(plan, results, directory))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    failed = [result for result in results if result.reason]
    typer.echo(f"points           {len(results)}, {len(failed)} failed")
    for result in failed[:5]:
        typer.echo(f"  {result.point.name}   {result.reason}")
    if others := other_code(result.code for result in results):
        typer.echo(f"points           {others}")
    for path in (*written, directory.page):
        typer.echo(f"{path.suffix[1:]:<17}{path}")


@contextmanager
def interruptible() -> Iterator[None]:
    """Tell a user who interrupts the block how to continue; finished points are kept."""
    with unwound_by_sigterm(), told(f"; continue with: {this_command()}"):
        yield


@contextmanager
def at_work(folder: Path, workers: int | None, *, ray: bool = False) -> Iterator[tuple[SweepDirectory, Pool]]:
    """Lock the sweep folder and start its worker pool."""
    from scenarios.sweep.directory import SweepDirectory
    from scenarios.sweep.pool import local_pool, ray_pool

    directory = SweepDirectory.open(folder)
    pool = ray_pool() if ray else local_pool(workers or os.cpu_count() or 1)
    with directory.alone(), pool as ready:
        yield directory, ready

"""The `fedsim sweep` command."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

BaseSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the base."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes that work at a time; as many as cores if not given.")
]
Ray = Annotated[bool, typer.Option("--ray", help="Work on a Ray cluster instead.")]
Json = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep file (docs/sweeps.md).")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="The sweep's folder; runs/NAME if not given.")
    ] = None,
    overrides: BaseSet = None,
    workers: Workers = None,
    ray: Ray = False,
    as_json: Json = False,
) -> None:
    """Run every combination of the values that a file lists; a sweep that was stopped goes on."""
    from scenarios.sweep.sweep import Sweep

    plan = Sweep.load(file, overrides or ())
    folder = out or Path("runs") / file.stem

    from fedsim.files import write_text
    from scenarios.console import progress_bars
    from scenarios.sweep.page import render_sweep
    from scenarios.sweep.pool import local_pool, ray_pool
    from scenarios.sweep.run import SweepDirectory, check_worlds, run_sweep
    from scenarios.sweep.table import tidy, write_table

    # Termination has to unwind as Ctrl-C does, so that no worker outlives this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with progress_bars() as bar:
        check_worlds(plan, folder, bar("checking"))
        directory = SweepDirectory.open(folder)
        hands = ray_pool() if ray else local_pool(workers or os.cpu_count() or 1)
        with hands as ready:
            results = run_sweep(plan, directory, ready, bar("points"))
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
    for path in (*written, directory.page):
        typer.echo(f"{path.suffix[1:]:<17}{path}")

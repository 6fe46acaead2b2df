"""The `fedsim evaluate` command."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from scenarios.sweep.cli import BaseSet, Json, Ray, Workers


def evaluate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An evaluation file, or one from the library.")],
    *,
    out: Annotated[Path | None, typer.Option("--out", help="The folder; runs/NAME if not given.")] = None,
    overrides: BaseSet = None,
    workers: Workers = None,
    ray: Ray = False,
    as_json: Json = False,
) -> None:
    """Compare defences: what each stops, and what it costs."""
    from scenarios.evaluate.evaluate import Evaluation, columns, sentence, table
    from scenarios.evaluate.evaluate import evaluate as evaluate_defences
    from scenarios.scenario import find_scenario

    path = find_scenario(file)
    plan = Evaluation.load(path, overrides or ())
    folder = out or Path("runs") / path.stem

    from fedsim.files import write_text
    from scenarios.console import progress_bars
    from scenarios.evaluate.page import render_evaluation
    from scenarios.sweep.pool import local_pool, ray_pool
    from scenarios.sweep.run import SweepDirectory, check_worlds
    from scenarios.sweep.table import write_table

    # Termination has to unwind as Ctrl-C does, so that no worker outlives this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with progress_bars() as bar:
        check_worlds(plan.sweep, folder, bar("checking"))
        directory = SweepDirectory.open(folder)
        hands = ray_pool() if ray else local_pool(workers or os.cpu_count() or 1)
        with hands as ready:
            outcomes = evaluate_defences(plan, directory, ready, bar("points"))
    rows, page = table(outcomes), folder / "evaluation.html"
    if rows:
        write_table(rows, folder / "evaluation.csv")
    write_text(page, render_evaluation(plan, outcomes, directory))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for outcome in outcomes:
        typer.secho(outcome.name, bold=True)
        for key, heading in columns(outcomes).items():
            if key in outcome.figures:
                typer.echo(f"  {heading:<20}{outcome.figures[key]}")
        for result in outcome.results:
            if result.reason:
                typer.echo(f"  failed: {result.reason}")
    for outcome in outcomes[1:]:
        typer.echo(sentence(outcome, outcomes[0]))
    typer.echo(f"page: {page}")

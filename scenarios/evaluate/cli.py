"""The `fedsim evaluate` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from scenarios.sweep.cli import BaseSet, Fresh, Json, Ray, Workers, at_work, interruptible


def evaluate(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An evaluation file, or a name from the library.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the evaluation; runs/NAME by default.")
    ] = None,
    overrides: BaseSet = None,
    workers: Workers = None,
    ray: Ray = False,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Compare defences: what each stops, and what it costs."""
    from scenarios.evaluate.evaluation import Evaluation
    from scenarios.run.scenario import find_scenario

    path = find_scenario(file)
    plan = Evaluation.load(path, overrides or ())
    folder = out or Path("runs") / path.stem

    from fedsim.core.files import write_text
    from scenarios.console import progress_bars
    from scenarios.evaluate.outcome import columns, table
    from scenarios.evaluate.outcome import evaluate as evaluate_defences
    from scenarios.evaluate.page import render_evaluation
    from scenarios.evaluate.sentences import sentence
    from scenarios.evaluate.verdict import Verdict
    from scenarios.sweep.code import other_code
    from scenarios.sweep.run import check_worlds
    from scenarios.sweep.table import write_table

    with interruptible(), progress_bars() as bar:
        check_worlds(plan.sweep, folder, bar("checking"), fresh=fresh)
        with at_work(folder, workers, ray=ray) as (directory, pool):
            outcomes = evaluate_defences(plan, directory, pool, bar("points"), fresh=fresh)
    rows, page = table(outcomes), folder / "evaluation.html"
    if rows:
        write_table(rows, folder / "evaluation.csv")
    write_text(page, render_evaluation(plan, outcomes, directory))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for outcome in outcomes:
        verdict = Verdict.of(outcome)
        typer.secho(outcome.name + (f": {verdict.form}" if verdict else ""), bold=True)
        for key, heading in columns(outcomes).items():
            if key in outcome.figures:
                typer.echo(f"  {heading:<22}{outcome.figures[key]}")
        for result in outcome.results:
            if result.reason:
                typer.echo(f"  failed: {result.reason}")
    for outcome in outcomes[1:]:
        typer.echo(sentence(outcome, outcomes[0]))
    if others := other_code(result.code for outcome in outcomes for result in outcome.results):
        typer.echo(f"Runs {others}")
    typer.echo(f"page: {page}")

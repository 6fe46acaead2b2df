"""The `fedsim evaluate` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from scenarios.sweep.cli import BaseSet, Fresh, Json, Ray, Workers, interruptible


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
    from scenarios.evaluate.api import evaluate as evaluate_defences
    from scenarios.evaluate.outcome import columns
    from scenarios.sweep.code import other_code

    with interruptible():
        found = evaluate_defences(
            file, out=out, overrides=overrides or (), workers=workers, ray=ray, fresh=fresh
        )
    if as_json:
        typer.echo(json.dumps(found.rows(), indent=2))
        return
    for outcome in found.outcomes:
        verdict = found.verdicts.get(outcome.name)
        typer.secho(outcome.name + (f": {verdict}" if verdict else ""), bold=True)
        for key, heading in columns(found.outcomes).items():
            if key in outcome.figures:
                typer.echo(f"  {heading:<22}{outcome.figures[key]}")
        for result in outcome.results:
            if result.reason:
                typer.echo(f"  failed: {result.reason}")
    for sentence in found.sentences:
        typer.echo(sentence)
    typer.secho(found.recommendation, bold=True)
    if others := other_code(result.other_code for outcome in found.outcomes for result in outcome.results):
        typer.echo(f"Runs {others}")
    typer.echo(f"page: {found.page}")

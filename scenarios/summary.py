"""The summary of a run on the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from scenarios.run.result import Result
    from scenarios.run.sections import Disaggregation


def show_result(result: Result, report_file: Path, *, as_json: bool) -> None:
    """Print every figure as JSON, or the most important ones as a table."""
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2))
        return
    for name, value, note in result_rows(result):
        typer.echo(f"{name:<14}{value:9.3f}   {note}")
    _show_exceptions(result.disaggregation)
    _show_inference(result)
    typer.echo(f"report           {report_file}")


def result_rows(result: Result) -> Iterator[tuple[str, float, str]]:
    """Rows of the table: name, value, and the baseline or remark beside it."""
    found, base = result.disaggregation, result.disaggregation.baselines
    names = ", columns matched to names by the truth" if found.pseudonymous else ""
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in found.outcomes.items())
    best = found.ceiling
    if found.ones_found is not None:
        beside = _beside(base.counts_only_ones_found, best.ones_found if best else None)
        yield "ones found", found.ones_found, f"{beside}{names}"
    columns = _beside(base.counts_only_exact_fraction, best.exact_fraction if best else None)
    yield "exact columns", found.exact_fraction, columns
    if set(found.outcomes) != {
        "unresolved"
    }:  # otherwise nothing was attempted, and every entry counts as wrong
        yield "entries right", found.bit_accuracy, f"guess {base.counts_only_bit_accuracy:.3f}"
    yield "certified", found.certified_fraction, outcomes
    if found.resolved_update_cosine is not None:
        some = " (over clients with a recovered update)" if found.unresolved else ""
        beside = f"mean aggregate {base.aggregate_update_cosine:.3f}{some}"
        yield "update cosine", found.resolved_update_cosine, beside
    else:
        yield "update cosine", base.aggregate_update_cosine, "mean aggregate; no update was recovered"
    if found.estimated_update_cosine is not None and found.unresolved:
        yield "", found.estimated_update_cosine, "estimates for all clients"
    yield "", base.oracle_update_cosine, "oracle"
    yield "test accuracy", result.training.test_accuracy, f"after {result.simulation.rounds} rounds"
    if result.training.test_perplexity is not None:
        yield (
            "perplexity",
            result.training.test_perplexity,
            f"unigram {result.training.unigram_perplexity:.0f}",
        )
    solving = f"simulation, then {found.seconds:.2f} to solve: {found.solver}"
    inferring = (
        "" if result.inference is None else f", then {result.inference.cpu_seconds:.2f} CPU for inference"
    )
    yield "seconds", result.simulation.seconds, f"{solving}{inferring}"


def _beside(guess: float | None, ceiling: float | None) -> str:
    """A figure of the guess and of the ceiling, where there are any."""
    figures = {"guess": guess, "ceiling": ceiling}
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if value is not None)


def _show_exceptions(found: Disaggregation) -> None:
    """Clients without an update of their own or without a column, and why there is no ceiling."""
    if found.singled_out_fraction != found.exact_fraction:
        typer.echo(
            f"singled out   {found.singled_out_fraction:9.3f}   of the others no update, or only a group's"
        )
    for reason, number in found.unresolved.items():
        typer.echo(f"unresolved    {number:9d}   {reason}")
    if found.likely is not None and found.likely.overconfident:
        typer.echo(f"warning               –   {found.likely.warning()}")
    if found.ceiling is not None and found.ceiling.ones_found is None:
        typer.echo(f"ceiling               –   {found.ceiling.basis}")


def _show_inference(result: Result) -> None:
    from scenarios.run.inference.figures import COLUMNS, figures

    found = figures(result)
    if found:
        typer.echo(f"\n{'':<34}" + "".join(f"{column:>15}" for column in COLUMNS) + "   baseline")
    for key, rows in found.items():
        for name, columns, baseline in rows:
            cells = "".join(f"{_number(columns[column]):>15}" for column in COLUMNS)
            typer.echo(f"{key + ' ' + name:<34}{cells}   {baseline}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"

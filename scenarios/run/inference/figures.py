"""The figures of inference attacks as rows of a table, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.run.result import Result
from scenarios.run.scores import ByCohort, Columns

COLUMNS = ("aggregate", "disaggregated", "oracle")

Row = tuple[str, Mapping[str, float | None], str]
"""The figure's name, its value in every column, and the baselines to compare it with."""


def figures(result: Result) -> dict[str, list[Row]]:
    """The rows of every inference attack, by its key; no rows if there was nobody to attack."""
    return {
        key: [_row(name, columns, by_cohort) for name, columns, by_cohort in score.figures()]
        for key, score in result.scores.items()
    }


def _row(name: str, columns: Columns, by_cohort: ByCohort) -> Row:
    beside = [f"{baseline} {_number(value)}" for baseline, value in columns.baselines.items()]
    if by_cohort:
        sizes = ", ".join(f"{size}: {_number(value)}" for size, value in by_cohort.items())
        beside.append(f"cohorts of {sizes}")
    return name, {column: getattr(columns, column) for column in COLUMNS}, "; ".join(beside)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"

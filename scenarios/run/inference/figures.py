"""The figures of inference attacks as rows of a table, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = ("aggregate", "disaggregated", "oracle")
_NOT_FIGURES = ("cohort_size", "seconds", "iterations")

Row = tuple[str, Mapping[str, float | None], str]
"""The figure's name, its value in every column, and what stands beside them as a baseline."""


def figures(result: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Entry → its rows, from a whole result; none where there was nobody to attack."""
    scores = {**result.get("inversion", {}), **{k: v for k, v in result.items() if _is_score(v)}}
    return {
        key: [_row(score, name) for name in score if _is_figure(score, name)] for key, score in scores.items()
    }


def _is_score(part: Any) -> bool:
    return isinstance(part, Mapping) and "resolved" in part and "clients" in part


def _is_figure(score: Mapping[str, Any], name: str) -> bool:
    return name not in _NOT_FIGURES and isinstance(score[name], Mapping) and set(COLUMNS) <= set(score[name])


def _row(score: Mapping[str, Any], name: str) -> Row:
    values = score[name]
    baseline = [f"{column} {_number(values[column])}" for column in values if column not in COLUMNS]
    cohorts = score.get(f"{name}_by_cohort", {})
    if cohorts:
        sizes = ", ".join(f"{size}: {_number(value)}" for size, value in cohorts.items())
        baseline.append(f"cohorts of {sizes}")
    return name, {column: values[column] for column in COLUMNS}, "; ".join(baseline)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"

"""The outcome of a sweep as a table: one row per point, one column per key and per figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsim.core.files import written_whole
from scenarios.run.figure_names import figures_of
from scenarios.sweep.run import PointResult
from scenarios.sweep.sweep import Sweep, shown
from scenarios.tables import Row, write_csv


def tidy(sweep: Sweep, results: Sequence[PointResult]) -> list[dict[str, Any]]:
    """A row per point: its name, its values, every figure by dotted name, its code, and why it failed.

    All rows have the same columns in the same order.
    """
    figures = [{} if result.figures is None else figures_of(result.figures) for result in results]
    names = [
        name for name in dict.fromkeys(name for row in figures for name in row) if name not in sweep.keys
    ]
    return [
        {
            "point": result.point.name,
            **{key: _cell(result.point.values[key]) for key in sweep.keys},
            **{name: row.get(name) for name in names},
            "code": result.code,
            "reason": result.reason,
        }
        for result, row in zip(results, figures, strict=True)
    ]


def write_table(rows: Sequence[Row], path: Path) -> list[Path]:
    """Write a CSV file and, if pyarrow is installed, a Parquet file beside it; return their paths."""
    write_csv(rows, path)
    if find_spec("pyarrow") is None:
        return [path]
    import pyarrow
    from pyarrow import parquet

    beside = path.with_suffix(".parquet")
    columns = {name: _uniform([row[name] for row in rows]) for name in rows[0]}
    with written_whole(beside) as temporary:
        parquet.write_table(pyarrow.table(columns), temporary)
    return [path, beside]


def _cell(value: Any) -> Any:
    return shown(value) if isinstance(value, Mapping | list) else value


def _uniform(values: list[Any]) -> list[Any]:
    """Values of one type, as Parquet needs: if any value is a text, all become texts."""
    if not any(isinstance(value, str) for value in values):
        return values
    return [None if value is None else str(value) for value in values]

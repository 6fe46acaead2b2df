"""Cells of an earlier record.

Runs take gigabytes and stay on the machine that made them. Their cells are in the tables of the record, and
the next record starts from those tables.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from fedsim.core.errors import UserError
from scenarios.reproduction.measures.cell import Cell
from scenarios.reproduction.outcome import Outcome
from scenarios.sweep.sweep import Point, shown

FIRST_VALUE = "paper"
"""The first column of a table after its keys."""

Place = tuple[str, ...]
"""The values of a cell's keys, as text."""


def with_recorded(outcome: Outcome, table: Path) -> Outcome:
    """The outcome with cells of a record's `table`, if they have more seeds than its own."""
    if not table.exists():
        return outcome
    try:
        with table.open(encoding="utf-8", newline="") as file:
            keys, rows = _read(file)
        expected = list(outcome.cells[0].place) if outcome.cells else keys
        if keys != expected:
            raise UserError(
                f"{table}: cells by {', '.join(keys)}, expected by {', '.join(expected)}: move it away"
            )
        return _added(outcome, keys, rows)
    except (csv.Error, KeyError, ValueError) as error:
        raise UserError(f"{table}: not a table of a record: {error}") from error


def _read(file: TextIO) -> tuple[list[str], list[dict[str, str]]]:
    """The key columns of a table, and its rows."""
    reader = csv.DictReader(file, strict=True)
    columns = list(reader.fieldnames or ())
    if FIRST_VALUE not in columns:
        raise ValueError(f"it has no column {FIRST_VALUE}")
    return columns[: columns.index(FIRST_VALUE)], list(reader)


def _added(outcome: Outcome, keys: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Outcome:
    """The outcome with the cells in these rows."""
    points = _points(outcome, keys)
    cells = {tuple(shown(cell.place[key]) for key in keys): cell for cell in outcome.cells}
    costs = dict(outcome.costs)
    for row in rows:
        place = tuple(row[key] for key in keys)
        same = points.get(_swept(outcome, keys, place))
        # The experiment may have changed: cells that are no longer part of it are dropped.
        if not same:
            continue
        blank = cells.get(place) or _unknown(same[0], dict(zip(keys, place, strict=True)))
        if blank.seeds < int(row["seeds"]):
            cells[place] = _recorded(row, blank)
            # The key names all runs of the cell, so that runs which several cells share cost once.
            costs[frozenset(point.name for point in same)] = float(row["seconds"])
    return replace(outcome, cells=tuple(cells.values()), costs=costs)


def _swept(outcome: Outcome, keys: Sequence[str], place: Place) -> Place:
    """The values of the sweep's keys; a measure may have added a key."""
    swept = outcome.experiment.sweep.keys
    return tuple(value for key, value in zip(keys, place, strict=True) if key in swept)


def _points(outcome: Outcome, keys: Sequence[str]) -> Mapping[Place, list[Point]]:
    """The points of each cell."""
    sweep, found = outcome.experiment.sweep, defaultdict(list)
    for point in sweep.points:
        found[tuple(shown(point.values[key]) for key in keys if key in sweep.keys)].append(point)
    return found


def _unknown(point: Point, place: Mapping[str, str]) -> Cell:
    """A cell that exists only after a run, such as one value of a histogram."""
    typed = {key: point.values.get(key, _number(value)) for key, value in place.items()}
    return Cell(typed, None, seeds=0, seeds_planned=0, columns=0, limit="", cpu_seconds=0.0)


def _number(text: str) -> Any:
    with suppress(ValueError):
        return int(text)
    return text


def _recorded(row: Mapping[str, str], blank: Cell) -> Cell:
    """The cell with the values of a row."""

    def value(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return replace(
        blank,
        ours=value("ours"),
        seeds=int(row["seeds"]),
        seeds_planned=int(row["seeds_planned"]),
        columns=int(row["columns"]),
        limit=row["limit"],
        cpu_seconds=float(row["seconds"]),
        codes=tuple(row["code"].split("; ")),
        baseline=value("baseline"),
        # Two values without a difference are not compared.
        telling=not (row["ours"] and row["paper"] and not row["difference"]),
    )

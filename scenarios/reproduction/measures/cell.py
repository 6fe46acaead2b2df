"""A cell of a table, or a place on a curve."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SEED = "seed"
"""The key that a cell averages over."""

Row = Mapping[str, Any]
"""A point: its keys, its figures by dotted name (None if it was not run), `point`, `training`, `columns`,
`limit` and `code`."""


@dataclass(frozen=True)
class Cell:
    """One value of ours and how it was made; `ours` is None if nothing was run.

    `seeds` of the `seeds_planned` were run, with `columns` participation columns in all, with the solver and
    the time limits in `limit`, by the `codes` (seeds may differ). `baseline` is the value without an attack.
    If the paper's value is not above it, the cell is not `telling`. `limits` are further values to draw, by
    name.
    """

    place: Mapping[str, Any]
    ours: float | None
    seeds: int
    seeds_planned: int
    columns: int
    limit: str
    cpu_seconds: float
    codes: tuple[str, ...] = ()
    baseline: float | None = None
    paper: float | None = None
    telling: bool = True
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def difference(self) -> float | None:
        """Our value minus the paper's; None if the two cannot be compared."""
        if self.ours is None or self.paper is None or not self.telling:
            return None
        return self.ours - self.paper


def rest(keys: Iterable[str]) -> list[str]:
    """The keys that tell cells apart."""
    return [key for key in keys if key != SEED]


def by_place(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Groups of rows with the same values of some keys."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def mean_of(rows: Sequence[Row], figure: str) -> float | None:
    """The mean of a figure over the rows that have it."""
    values = [float(row[figure]) for row in rows if row.get(figure) is not None]
    return sum(values) / len(values) if values else None


def cell(place: Mapping[str, Any], rows: Sequence[Row], ours: float | None, **more: Any) -> Cell:
    """The cell of these rows, some of which may not have been run."""
    run = [row for row in rows if was_run(row)]
    return Cell(
        place=place,
        ours=ours,
        seeds=len({row.get(SEED) for row in run}),
        seeds_planned=len({row.get(SEED) for row in rows}),
        columns=sum(row["columns"] for row in run),
        limit="; ".join(dict.fromkeys(row["limit"] for row in rows)),
        cpu_seconds=sum(costs(run).values()),
        codes=tuple(dict.fromkeys(row["code"] for row in run)),
        **more,
    )


def was_run(row: Row) -> bool:
    """Whether a row has figures."""
    return row.get(EXACT_FRACTION) is not None


EXACT_FRACTION = "disaggregation.exact_fraction"


def costs(rows: Iterable[Row]) -> dict[Hashable, float]:
    """CPU seconds by task; a training or an attack that rows share appears once.

    Runs of older code state only seconds by the clock, which are used instead.
    """
    spent: dict[Hashable, float] = {}
    for row in rows:
        if was_run(row):
            spent["attack", row["point"]] = _either(row, "disaggregation")
            spent["inference", row["point"]] = _either(row, "inference")
            spent["training", row["training"]] = _either(row, "simulation")
    return spent


def _either(row: Row, section: str) -> float:
    measured = row.get(f"{section}.cpu_seconds")
    return float(row.get(f"{section}.seconds") or 0.0) if measured is None else float(measured)

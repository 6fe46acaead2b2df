"""A cell of a table, or a place on a curve."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SEED = "seed"
"""The key that cells sum up over."""

Row = Mapping[str, Any]
"""A point: its keys, its figures by dotted name (None if it has not been run), the names `point` and
`training`, `columns`, `limit`, `code`."""


@dataclass(frozen=True)
class Cell:
    """One value of ours and how it came about; `ours` is None where nothing has been run.

    `seeds` were run, out of `seeds_planned`, with so many `columns` sought in all of them together, under the
    solver and time `limit`, by `codes`: each seed may have been run by another. `baseline` is what no attack
    would give; where the paper's value is no more than that, it is not `telling`. `limits` are other values
    to draw in, by what they are.
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
        """Ours less the paper's, where the two are to be compared."""
        if self.ours is None or self.paper is None or not self.telling:
            return None
        return self.ours - self.paper


def rest(keys: Iterable[str]) -> list[str]:
    """The keys that tell cells apart."""
    return [key for key in keys if key != SEED]


def by_place(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that agree in some keys."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def mean_of(rows: Sequence[Row], figure: str) -> float | None:
    """The mean of a figure over the rows that have it."""
    values = [float(row[figure]) for row in rows if row.get(figure) is not None]
    return sum(values) / len(values) if values else None


def cell(place: Mapping[str, Any], rows: Sequence[Row], ours: float | None, **more: Any) -> Cell:
    """The cell that these rows make, some of which may not have been run."""
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
    """Whether there are figures."""
    return row.get(EXACT) is not None


EXACT = "disaggregation.exact_fraction"


def costs(rows: Iterable[Row]) -> dict[Hashable, float]:
    """CPU seconds of all that was run, by what it was: a training or an attack that rows share stands once.

    Runs of older code know what the clock said, and nothing of processors.
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

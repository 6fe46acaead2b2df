"""The least value of a key from which recovery is exact in every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from fedsim.core.settings import Settings
from scenarios.reproduction.measures.cell import EXACT, Cell, Row, by_place, cell, was_run


class Fewest(Settings):
    """The least value of the key `over` at which every client of every seed that was run is exact.

    Whether that is the least is known only if all smaller ones of the grid were tried, with as many seeds as
    any; a cell of which it is not known counts as not run. `limits` are drawn in, as multiples of the number
    of clients.
    """

    name: Literal["fewest"] = "fewest"
    over: str = "rounds"
    limits: dict[str, float] = Field(default={})

    @property
    def label(self) -> str:
        """What it is called."""
        return f"fewest {self.over}"

    @property
    def measured(self) -> list[str]:
        """The figures that it is made of."""
        return [EXACT]

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the other keys."""
        others = [key for key in keys if key != self.over]
        return [
            self._cell(dict(zip(others, place, strict=True)), same)
            for place, same in by_place(rows, others).items()
        ]

    def _cell(self, place: Mapping[str, Any], rows: Sequence[Row]) -> Cell:
        trials = {
            value: [row[EXACT] for row in same if was_run(row)]
            for (value,), same in by_place(rows, [self.over]).items()
        }
        most = max(map(len, trials.values()))
        limits = {name: factor * rows[0]["columns"] for name, factor in self.limits.items()}
        for value in sorted(trials):
            if not most or len(trials[value]) < most:
                return cell(place, [{**row, EXACT: None} for row in rows], None, limits=limits)
            if min(trials[value]) == 1:
                return cell(place, rows, float(value), limits=limits)
        return cell(place, rows, None, limits=limits)

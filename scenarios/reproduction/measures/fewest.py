"""The smallest value of a key for which recovery is exact in every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from fedsim.core.settings import Settings
from scenarios.reproduction.measures.cell import EXACT_FRACTION, Cell, Row, by_place, cell, was_run


class Fewest(Settings):
    """The smallest value of the key `over` for which every client is exact in every seed that was run.

    It is known only if all smaller values of the grid were run with as many seeds. Otherwise the cell counts
    as not run. `limits` are also drawn; they are multiples of the number of clients.
    """

    name: Literal["fewest"] = "fewest"
    over: str = "rounds"
    limits: dict[str, float] = Field(default={})

    @property
    def label(self) -> str:
        """The label in pictures."""
        return f"fewest {self.over}"

    @property
    def measured(self) -> list[str]:
        """The dotted names of its figures."""
        return [EXACT_FRACTION]

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the other keys."""
        others = [key for key in keys if key != self.over]
        return [
            self._cell(dict(zip(others, place, strict=True)), same)
            for place, same in by_place(rows, others).items()
        ]

    def _cell(self, place: Mapping[str, Any], rows: Sequence[Row]) -> Cell:
        trials = {
            value: [row[EXACT_FRACTION] for row in same if was_run(row)]
            for (value,), same in by_place(rows, [self.over]).items()
        }
        most = max(map(len, trials.values()))
        limits = {name: factor * rows[0]["columns"] for name, factor in self.limits.items()}
        for value in sorted(trials):
            if not most or len(trials[value]) < most:
                return cell(place, [{**row, EXACT_FRACTION: None} for row in rows], None, limits=limits)
            if min(trials[value]) == 1:
                return cell(place, rows, float(value), limits=limits)
        return cell(place, rows, None, limits=limits)

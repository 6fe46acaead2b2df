"""The least value of a key from which recovery is exact in every trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedsim.settings import Settings
from scenarios.reproduction.measures.cell import EXACT, Cell, Row, by_place, cell, was_run


class Fewest(Settings):
    """The least value of the key `over` at which every client of every seed that was run is exact.

    There is none if the grid has a smaller one at which fewer seeds were run: a few trials are luckier than
    many, and what was not tried might do. `limits` are drawn in, as multiples of the number of clients.
    """

    name: Literal["fewest"] = "fewest"
    over: str = "rounds"
    limits: dict[str, float] = Field(default={})

    @property
    def label(self) -> str:
        """What it is called."""
        return f"fewest {self.over}"

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the other keys."""
        others = [key for key in keys if key != self.over]
        return [
            cell(
                dict(zip(others, place, strict=True)),
                same,
                self._least(same),
                limits={name: factor * same[0]["columns"] for name, factor in self.limits.items()},
            )
            for place, same in by_place(rows, others).items()
        ]

    def _least(self, rows: Sequence[Row]) -> float | None:
        trials = {
            value: [row[EXACT] for row in same if was_run(row)]
            for (value,), same in by_place(rows, [self.over]).items()
        }
        most = max(map(len, trials.values()))
        for value in sorted(trials):
            if len(trials[value]) < most:
                return None
            if min(trials[value], default=0) == 1:
                return float(value)
        return None

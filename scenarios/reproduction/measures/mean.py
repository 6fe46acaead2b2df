"""The mean of a figure over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedsim.core.settings import Settings
from scenarios.reproduction.measures.cell import EXACT, Cell, Row, by_place, cell, mean_of

GUESS = "disaggregation.baselines.counts_only_exact_fraction"


class Mean(Settings):
    """A `figure` of a result by its dotted name; exact fractions stand beside what counts alone would give.

    With `exact_only`, points at which not every column was recovered do not count: the time that a search
    takes says nothing where it finds nothing.
    """

    name: Literal["mean"] = "mean"
    figure: str = EXACT
    exact_only: bool = False

    @property
    def label(self) -> str:
        """What it is called."""
        return self.figure

    @property
    def measured(self) -> list[str]:
        """The figures that it is made of."""
        return [self.figure]

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the keys."""
        return [
            cell(
                dict(zip(keys, place, strict=True)),
                same,
                mean_of([row for row in same if not self.exact_only or row.get(EXACT) == 1], self.figure),
                baseline=mean_of(same, GUESS) if self.figure == EXACT else None,
            )
            for place, same in by_place(rows, keys).items()
        ]

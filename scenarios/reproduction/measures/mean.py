"""The mean of a figure over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedsim.core.settings import Settings
from scenarios.reproduction.measures.cell import EXACT_FRACTION, Cell, Row, by_place, cell, mean_of

GUESS = "disaggregation.baselines.counts_only_exact_fraction"


class Mean(Settings):
    """The mean of a `figure`, by dotted name. The exact fraction has a baseline: the guess from counts alone.

    With `exact_only`, only points count at which every column was recovered: the time of a failed search says
    nothing.
    """

    name: Literal["mean"] = "mean"
    figure: str = EXACT_FRACTION
    exact_only: bool = False

    @property
    def label(self) -> str:
        """The label in pictures."""
        return self.figure

    @property
    def measured(self) -> list[str]:
        """The dotted names of its figures."""
        return [self.figure]

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the keys."""
        return [
            cell(
                dict(zip(keys, place, strict=True)),
                same,
                mean_of(
                    [row for row in same if not self.exact_only or row.get(EXACT_FRACTION) == 1], self.figure
                ),
                baseline=mean_of(same, GUESS) if self.figure == EXACT_FRACTION else None,
            )
            for place, same in by_place(rows, keys).items()
        ]

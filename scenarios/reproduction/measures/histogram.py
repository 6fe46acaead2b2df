"""A distribution: a cell for each of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedsim.core.settings import Settings
from scenarios.reproduction.measures.cell import Cell, Row, by_place, cell, mean_of, was_run


class Histogram(Settings):
    """A cell per value of the section `figures`, which maps values to their share; its key is `count`."""

    name: Literal["histogram"] = "histogram"
    figures: str

    @property
    def label(self) -> str:
        """The label in pictures."""
        return f"share of {self.figures}"

    @property
    def measured(self) -> list[str]:
        """The dotted names of its figures."""
        return [f"{self.figures}.0"]

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the keys and every value that occurs."""
        prefix = f"{self.figures}."
        names = sorted(
            {name for row in rows for name in row if name.startswith(prefix)},
            key=lambda name: int(name.removeprefix(prefix)),
        )
        return [
            cell(
                {**dict(zip(keys, place, strict=True)), "count": int(name.removeprefix(prefix))},
                same,
                # A value that does not occur in a run has a share of 0 there.
                mean_of([{name: row.get(name) or 0.0} for row in same if was_run(row)], name),
            )
            for place, same in by_place(rows, keys).items()
            for name in names
        ]

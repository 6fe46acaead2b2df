"""Several figures of the same runs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedsim.settings import Settings
from scenarios.reproduction.measures.cell import Cell, Row, by_place, cell, mean_of


class Figures(Settings):
    """Figures by their dotted names, under what each is called: a cell each, at the key `what`.

    `paper` has the paper's value for some of them. Baselines are figures like others.
    """

    name: Literal["figures"] = "figures"
    figures: dict[str, str]
    paper: dict[str, float] = Field(default={})

    @property
    def label(self) -> str:
        """What it is called."""
        return "value"

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the keys and every figure."""
        return [
            cell(
                {**dict(zip(keys, place, strict=True)), "what": what},
                same,
                mean_of(same, figure),
                paper=self.paper.get(what),
            )
            for place, same in by_place(rows, keys).items()
            for what, figure in self.figures.items()
        ]

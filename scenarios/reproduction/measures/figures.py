"""Several figures of the same runs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedsim.core.settings import Settings
from scenarios.reproduction.measures.cell import Cell, Row, by_place, cell, mean_of


class Figures(Settings):
    """Dotted names of figures by label; each is a cell of its own, with its label as the key `what`.

    `paper` has the paper's values for some labels. `baseline` is the label of a figure that needs no attack.
    A value of the paper that is not above it is shown but not compared with ours.
    """

    name: Literal["figures"] = "figures"
    figures: dict[str, str]
    paper: dict[str, float] = Field(default={})
    baseline: str | None = None
    unit: str = "value"

    @property
    def label(self) -> str:
        """The label in pictures."""
        return self.unit

    @property
    def measured(self) -> list[str]:
        """The dotted names of its figures."""
        return list(self.figures.values())

    def cells(self, rows: Sequence[Row], keys: Sequence[str]) -> list[Cell]:
        """A cell for every setting of the keys and every figure."""
        cells = []
        for place, same in by_place(rows, keys).items():
            baseline = None if self.baseline is None else mean_of(same, self.figures[self.baseline])
            for what, figure in self.figures.items():
                paper = self.paper.get(what)
                cells.append(
                    cell(
                        {**dict(zip(keys, place, strict=True)), "what": what},
                        same,
                        mean_of(same, figure),
                        baseline=baseline,
                        paper=paper,
                        telling=paper is None or baseline is None or paper > baseline,
                    )
                )
        return cells

"""The outcome of an experiment as a table: a grid of cells, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.reproduction.experiment import Experiment
from scenarios.reproduction.measures.cell import Cell, costs
from scenarios.sweep.code import other_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.sweep import shown

ROUNDING = 0.005
"""Differences up to this are equal: the paper gives two digits."""
BLANK, NOWHERE = "·", "–"
"""A cell that was not run; a cell that was run and has no value."""


@dataclass(frozen=True)
class Tally:
    """Numbers of cells: all, run, and better than, equal to or worse than the paper's."""

    cells: int
    run: int
    better: int
    equal: int
    worse: int

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Tally:
        """Count cells. The paper's values are fractions recovered or decibels, so more is better.

        Cells are equal if they differ by no more than the paper's rounding.
        """
        cells = list(cells)
        gains = [c.difference for c in cells if c.difference is not None]
        better, worse = sum(gain > ROUNDING for gain in gains), sum(gain < -ROUNDING for gain in gains)
        run = sum(c.seeds > 0 for c in cells)
        return cls(len(cells), run, better, len(gains) - better - worse, worse)

    @property
    def compared(self) -> int:
        """Number of cells that were run and can be compared with the paper."""
        return self.better + self.equal + self.worse

    def __str__(self) -> str:
        run = f"{self.run} of {self.cells} cells run"
        if not self.compared:
            return run
        return f"{run}: {self.better} better than the paper's, {self.equal} equal, {self.worse} worse"


@dataclass(frozen=True)
class Outcome:
    """An experiment with all its cells, run or not, and the cost of those that were run.

    `costs` are CPU seconds by task. Experiments that share runs use the same keys for them.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    costs: Mapping[Hashable, float]

    @classmethod
    def read(cls, experiment: Experiment, directory: SweepDirectory) -> Outcome:
        """Read the cells in a folder; nothing is run."""
        rows = experiment.rows(directory)
        return cls(experiment, tuple(experiment.cells(rows)), costs(rows))

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds in all."""
        return sum(self.costs.values())

    @property
    def others(self) -> str:
        """A sentence about cells that other code made; empty if there are none."""
        return other_code("; ".join(cell.codes) for cell in self.cells)

    @property
    def across(self) -> list[Any]:
        """The values from left to right."""
        return sorted(
            dict.fromkeys(cell.place[self.experiment.file.across] for cell in self.cells), key=_rank
        )

    @property
    def down(self) -> list[tuple[tuple[str, Any], ...]]:
        """The values of the other keys, from top to bottom."""
        return list(dict.fromkeys(self.side(cell) for cell in self.cells))

    def side(self, cell: Cell) -> tuple[tuple[str, Any], ...]:
        """The keys and values that name the line of a cell, without keys that are the same everywhere."""
        keys = [key for key in cell.place if key != self.experiment.file.across]
        telling = [key for key in keys if len({shown(other.place[key]) for other in self.cells}) > 1]
        return tuple((key, shown(cell.place[key])) for key in telling)

    def grid(self) -> dict[tuple[Any, Any], Cell]:
        """Cells by their line and their column."""
        return {(self.side(cell), cell.place[self.experiment.file.across]): cell for cell in self.cells}

    def rows(self) -> list[dict[str, Any]]:
        """A row per cell for a file: its keys, the values, and how it was made."""
        return [
            {
                **{key: shown(value) for key, value in cell.place.items()},
                "paper": cell.paper,
                "ours": cell.ours,
                "difference": cell.difference,
                "baseline": cell.baseline,
                "columns": cell.columns,
                "seeds": cell.seeds,
                "seeds_planned": cell.seeds_planned,
                "limit": cell.limit,
                "seconds": round(cell.cpu_seconds, 2),
                "code": "; ".join(cell.codes),
            }
            for cell in self.cells
        ]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text: our value, the paper's after a slash; a dot if the cell was not run."""
        grid, across = self.grid(), self.across
        names = [key for key, _ in self.down[0]]
        lines = [
            [value for _, value in side] + [_said(grid.get((side, value))) for value in across]
            for side in self.down
        ]
        return [*names, *(_column(self.experiment.file.across, value) for value in across)], lines


def _column(key: str, value: Any) -> str:
    """The heading of a column: a name, or a number with the last part of its key."""
    return value if isinstance(value, str) else f"{key.rpartition('.')[2]} {shown(value)}"


def _rank(value: Any) -> Any:
    """Sorts numbers by size and keeps the order of names."""
    return value if isinstance(value, int | float) else 0


def _said(cell: Cell | None) -> str:
    if cell is None:
        return ""
    nothing = NOWHERE if cell.seeds else BLANK
    ours = nothing if cell.ours is None else f"{cell.ours:.3g}"
    return ours if cell.paper is None else f"{ours} / {cell.paper:g}"

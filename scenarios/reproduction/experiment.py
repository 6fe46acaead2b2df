"""An experiment of the paper: a sweep file with a measure and a picture."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedsim.core.errors import UserError
from scenarios.reproduction.measures import Measure
from scenarios.reproduction.measures.cell import Cell, Row, rest
from scenarios.reproduction.measures.mean import Mean
from scenarios.run.checking import checked
from scenarios.run.library import read_toml
from scenarios.run.overrides import Overrides, read_overrides, toml_value
from scenarios.run.scenario import Scenario
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.run import read_results
from scenarios.sweep.sweep import Block, Point, Sweep, SweepFile, shown
from scenarios.sweep.table import tidy

PAPER_FOLDER = Path(__file__).parents[1] / "paper"


class Budget(StrEnum):
    """How much to run: the paper's whole grid, or a part that takes minutes."""

    QUICK = "quick"
    FULL = "full"


class ExperimentFile(SweepFile):
    """A sweep file, and how to show its outcome.

    The full budget is the whole sweep. The quick budget is the points whose keys have a value in `quick`, so
    a full run reuses the points of a quick one. A `measure` turns points into cells. They are shown as heat
    maps, curves or bars, with the key `across` from left to right and all other keys downwards. `paper` is a
    table beside this file with the paper's values: a column per key, and a column `paper`. `notes` state the
    settings, and our choices where the paper is silent.
    """

    across: str
    picture: Literal["heat maps", "curves", "bars"] = "heat maps"
    measure: Measure = Mean()
    paper: str | None = None
    quick: Block = Field(default={})
    notes: list[str] = Field(default=[])


@dataclass(frozen=True)
class Experiment:
    """An experiment by its name, with all its points."""

    name: str
    file: ExperimentFile
    sweep: Sweep

    @classmethod
    def load(cls, path: Path, overrides: Overrides = ()) -> Experiment:
        """Read the file of an experiment; `overrides` change the base of a federation."""
        file = checked(ExperimentFile, read_toml(path), path)
        sweep = Sweep.plan(file, path, read_overrides(overrides) if file.base is not None else ())
        for figure in file.measure.measured:
            sweep.check_figure(figure, f"{path}: measure")
        return cls(path.stem, file, sweep)

    def budget(self, budget: Budget) -> Sweep:
        """The points to run for this budget."""
        return self.sweep if budget is Budget.FULL else _part(self.sweep, self.file.quick)

    def only(self, sweep: Sweep, chosen: Iterable[str]) -> Sweep:
        """The part of a sweep that texts like `KEY=VALUE,VALUE` choose; a `UserError` if it is empty."""
        part = _part(sweep, dict(self._chosen(text) for text in chosen))
        if not part.points:
            raise UserError(
                f"{self.name}: --only: none of the {len(sweep.points)} points has all of these values"
            )
        return part

    def _chosen(self, text: str) -> tuple[str, list[Any]]:
        """A varying key, and the values that the text lists."""
        key, equals, listed = text.partition("=")
        if not equals:
            raise UserError(f"--only {text}: expected KEY=VALUE,VALUE…, such as seed=1,2")
        if key not in self.sweep.keys:
            keys = ", ".join(self.sweep.keys)
            raise UserError(f"{self.name}: --only {text}: {key} does not vary, expected one of {keys}")
        values = {_written(p.values[key]): p.values[key] for p in self.sweep.points}
        for value in (wanted := [_written(toml_value(part.strip())) for part in listed.split(",")]):
            if value not in values:
                known = ", ".join(values)
                raise UserError(f"{self.name}: --only {text}: {value} is not one of its values, {known}")
        return key, [values[value] for value in wanted]

    def cells(self, rows: Sequence[Row]) -> list[Cell]:
        """Every cell of the full grid, with our value if it was run and the paper's value if there is one."""
        return [
            cell if cell.paper is not None else replace(cell, paper=self._paper(cell.place))
            for cell in self.file.measure.cells(rows, rest(self.sweep.keys))
        ]

    def rows(self, directory: SweepDirectory) -> list[Row]:
        """A row for every point of the full grid, with its figures if it was run."""
        results = read_results(self.sweep, directory)
        return [
            {**row, **_circumstances(result.point)}
            for row, result in zip(tidy(self.sweep, results), results, strict=True)
        ]

    def _paper(self, place: Mapping[str, Any]) -> float | None:
        keys = [key for key in self._known[0] if key in place] if self._known else []
        found = [row["paper"] for row in self._known if all(row[key] == place[key] for key in keys)]
        return found[0] if found else None

    @cached_property
    def _known(self) -> list[dict[str, float]]:
        if self.file.paper is None:
            return []
        with (PAPER_FOLDER / self.file.paper).open(encoding="utf-8", newline="") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _part(sweep: Sweep, wanted: Mapping[str, Sequence[Any]]) -> Sweep:
    """The points whose keys have one of these values."""
    points = (p for p in sweep.points if all(p.values[key] in values for key, values in wanted.items()))
    return replace(sweep, points=tuple(points))


def _written(value: Any) -> str:
    """A value as a user types it: 1 and 1.0 are the same."""
    return shown(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def _circumstances(point: Point) -> dict[str, Any]:
    """How a cell was made: the number of columns, the solver with its time limits, and the training."""
    settings = point.settings
    if isinstance(settings, Scenario):
        clients, solver = settings.federation.clients, settings.attack.solver.model_dump()
    else:
        clients, solver = settings.clients, settings.solver.model_dump()
    limits = (f"{name} {value:g}" for name, value in solver.items() if name.endswith("time_limit_s"))
    return {
        "columns": clients,
        "limit": ", ".join((solver["name"], *limits)),
        "training": point.training,
    }


def experiments(names: Iterable[str] = (), overrides: Overrides = ()) -> list[Experiment]:
    """The experiments of these names; all of them by default."""
    files = {
        path.stem: path for path in sorted(PAPER_FOLDER.glob("*.toml"), key=lambda path: _order(path.stem))
    }
    for name in names:
        if name not in files:
            raise UserError(f"{name}: no such table or figure, expected one of {', '.join(files)}")
    return [Experiment.load(files[name], overrides) for name in dict.fromkeys(names or files)]


def _order(name: str) -> tuple[bool, str]:
    """Tables before figures."""
    return not name.startswith("table"), name

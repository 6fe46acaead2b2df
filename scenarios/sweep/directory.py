"""The folder of a sweep: a run directory per point, and the trainings that points share.

    runs/NAME/
      sweep.toml           the sweep file, as last run
      points/NAME/         a run directory per point; its transcript and truth are links to …
      trainings/NAME/      … the training that points share if they differ only in what follows it
      sweep.csv            one row per point; sweep.parquet too, if pyarrow is installed
      sweep.html           the table and a picture of one figure

Points and trainings say in code.txt which code made them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import writing
from fedsim.core.locks import alone_in
from scenarios.planted import Planted
from scenarios.run.directory import RunDirectory
from scenarios.run.result import PlantedResult, Result
from scenarios.sweep.code import code_for, code_of
from scenarios.sweep.sweep import SPOOLED, Point


@dataclass(frozen=True)
class SweepDirectory:
    """The layout of a sweep's folder."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> SweepDirectory:
        """A folder that holds a sweep already, or a new one."""
        directory = cls(path)
        is_sweep = directory.file.exists() or (path / "points").is_dir()
        if path.exists() and not is_sweep and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not a sweep: choose another --out")
        with writing(path):
            (path / "points").mkdir(parents=True, exist_ok=True)
            (path / "trainings").mkdir(exist_ok=True)
        return directory

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder during the block; a `UserError` if another command has locked it."""
        with alone_in(self.path):
            for leftover in (self.path / "trainings").glob(f"{SPOOLED}*"):
                shutil.rmtree(leftover)
            yield

    @property
    def file(self) -> Path:
        """The sweep file as last run."""
        return self.path / "sweep.toml"

    @property
    def table(self) -> Path:
        """One row per point."""
        return self.path / "sweep.csv"

    @property
    def page(self) -> Path:
        """One self-contained page, which links to the points' reports."""
        return self.path / "sweep.html"

    def point(self, point: Point) -> RunDirectory:
        """The folder of a point."""
        return RunDirectory(self.path / "points" / point.name)

    def result(self, point: Point) -> Result | PlantedResult:
        """The figures of a point that is done."""
        kind = PlantedResult if isinstance(point.settings, Planted) else Result
        return kind.read(self.point(point).result)

    def training(self, name: str) -> RunDirectory:
        """The folder of a training."""
        return RunDirectory(self.path / "trainings" / name)

    def done(self, point: Point, *, fresh: bool = False) -> bool:
        """Whether the point's last file exists; with `fresh`, it must also be made by this code.

        A point that was attacked again with other settings is not done.
        """
        run = self.point(point)
        last = run.result if isinstance(point.settings, Planted) else run.report
        is_there = last.exists() and point.is_of(run.scenario)
        return is_there and (not fresh or code_of(run.path) == code_for(point.settings))

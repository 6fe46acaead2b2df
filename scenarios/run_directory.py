"""Where the files of a run are."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fedsim.errors import UserError


@dataclass(frozen=True)
class RunDirectory:
    """The layout of a run's folder. Everything after the simulation is a function of these files."""

    path: Path

    @property
    def scenario(self) -> Path:
        """Every setting, defaults written out."""
        return self.path / "scenario.toml"

    @property
    def transcript(self) -> Path:
        """What the server stored: the sums, and one line per round."""
        return self.path / "transcript"

    @property
    def counts(self) -> Path:
        """What telemetry published."""
        return self.path / "counts.csv"

    @property
    def truth(self) -> Path:
        """What really happened; only scoring reads it."""
        return self.path / "truth"

    @property
    def recovery(self) -> Path:
        """What the attack made of transcript and counts."""
        return self.path / "recovery.npz"

    @property
    def result(self) -> Path:
        """Every figure of the run."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """One self-contained page."""
        return self.path / "report.html"

    @classmethod
    def create(cls, path: Path, *, replace: bool) -> RunDirectory:
        """An empty run directory; one that holds a run already is replaced only when asked to."""
        directory = cls(path)
        holds_run = directory.scenario.exists()
        if holds_run and not replace:
            raise UserError(f"{path} already holds a run: choose another --out, or add --force to replace it")
        if not holds_run and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not a run: choose another --out")
        try:
            if holds_run:
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
            # A folder that exists may still refuse files; better to know before the training than after it.
            (path / ".writable").touch()
            (path / ".writable").unlink()
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to: {error.strerror}") from error
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The directory of a finished run."""
        directory = cls(path)
        for needed in (directory.scenario, directory.transcript, directory.counts, directory.result):
            if not needed.exists():
                raise UserError(f"{path} is not a finished run: {needed.name} is missing")
        return directory

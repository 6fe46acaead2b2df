"""Where the files of a run are."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from fedsim.errors import UserError
from fedsim.files import leftovers


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
    def checkpoint(self) -> Path:
        """Where an interrupted run goes on; a finished one has none. As secret as the truth."""
        return self.path / "checkpoint.zip"

    @property
    def answers(self) -> Path:
        """What devices answered to telemetry, before any release policy; no attack reads it."""
        return self.truth / "answers.csv"

    @property
    def recovery(self) -> Path:
        """What the attack made of transcript and counts."""
        return self.path / "recovery.npz"

    @property
    def inference(self) -> Path:
        """What the inference attacks guessed, a file for each of them."""
        return self.path / "inference"

    @property
    def inference_truth(self) -> Path:
        """What these guesses are compared with; only scoring reads it."""
        return self.inference / "truth"

    @property
    def result(self) -> Path:
        """Every figure of the run."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """One self-contained page."""
        return self.path / "report.html"

    @property
    def is_finished(self) -> bool:
        """Whether the run went to its end: its checkpoint is removed last of all."""
        return self.result.exists() and not self.checkpoint.exists()

    @classmethod
    def create(cls, path: Path, *, replace: bool) -> RunDirectory:
        """An empty run directory; one that holds a run already is replaced only when asked to."""
        directory = cls(path)
        holds_run = directory.scenario.exists()
        if holds_run and not replace:
            if not directory.is_finished:
                raise UserError(
                    f"{path} holds an interrupted run: add --resume to continue it, or --force to replace it"
                )
            raise UserError(f"{path} already holds a run: choose another --out, or add --force to replace it")
        if not holds_run and path.exists() and (not path.is_dir() or set(path.iterdir()) - leftovers(path)):
            raise UserError(f"{path} exists and is not a run: choose another --out")
        try:
            if holds_run:
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
            directory._check_writable()
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to: {error.strerror}") from error
        return directory

    @classmethod
    def resume(cls, path: Path, scenario: str) -> RunDirectory:
        """The directory of a run of the scenario with this text, interrupted or finished; else a new one."""
        directory = cls(path)
        if not directory.scenario.exists():
            return cls.create(path, replace=False)
        begun = directory.scenario.read_text(encoding="utf-8")
        for theirs, ours in zip_longest(begun.splitlines(), scenario.splitlines()):
            if theirs != ours:
                raise UserError(
                    f"--resume: {path} holds a run of another scenario, "
                    f"with the line {theirs or ''!r} instead of {ours or ''!r}"
                )
        try:
            directory._check_writable()
            for leftover in leftovers(path):
                leftover.unlink()
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to: {error.strerror}") from error
        return directory

    def _check_writable(self) -> None:
        """A folder that exists may still refuse files; better to know before the training than after it."""
        with tempfile.TemporaryFile(dir=self.path):
            pass

    @classmethod
    def open(cls, path: Path, *, attacked: bool = False) -> RunDirectory:
        """The directory of a finished run; what the attack wrote is there too if `attacked` asks for it."""
        directory = cls(path)
        needs = [
            directory.scenario,
            directory.transcript,
            directory.counts,
            directory.truth,
            directory.result,
        ]
        for needed in [*needs, directory.recovery] if attacked else needs:
            if not needed.exists():
                raise UserError(f"{path} is not a finished run: {needed.name} is missing")
        return directory

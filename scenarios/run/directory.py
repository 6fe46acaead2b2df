"""The folder of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from fedsim.core.errors import NotStartedError, UserError
from fedsim.core.files import check_regular, check_writable, leftovers, reading, writing
from fedsim.core.locks import LOCK_FILE
from fedsim.core.users_code import fault_of_users_code
from scenarios.run.digests import Manifest


@dataclass(frozen=True)
class RunDirectory:
    """The layout of a run's folder. Everything after the simulation is a function of these files."""

    path: Path

    @property
    def scenario(self) -> Path:
        """Every setting, defaults written out."""
        return self.path / "scenario.toml"

    @property
    def settings(self) -> str:
        """The text of the scenario's file."""
        with reading(self.scenario, "the scenario of a run"):
            return self.scenario.read_text(encoding="utf-8")

    @property
    def transcript(self) -> Path:
        """The server's records: the sums, and one line per round."""
        return self.path / "transcript"

    @property
    def counts(self) -> Path:
        """The published counts."""
        return self.path / "counts.csv"

    @property
    def truth(self) -> Path:
        """The truth; only scoring reads it."""
        return self.path / "truth"

    @property
    def checkpoint(self) -> Path:
        """The state from which an interrupted run continues. As secret as the truth."""
        return self.path / "checkpoint.zip"

    @property
    def answers(self) -> Path:
        """The devices' answers to telemetry, before any release policy; no attack reads them."""
        return self.truth / "answers.csv"

    @property
    def recovery(self) -> Path:
        """The attack's recovery from transcript and counts."""
        return self.path / "recovery.npz"

    @property
    def inference(self) -> Path:
        """The guesses of inference attacks, one file each."""
        return self.path / "inference"

    @property
    def inference_truth(self) -> Path:
        """The truth that these guesses are compared with; only scoring reads it."""
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
    def history(self) -> Path:
        """The curves of the training: the same run gives the same bytes."""
        return self.path / "history.csv"

    @property
    def pace(self) -> Path:
        """The seconds that the rounds took; no digest covers them."""
        return self.path / "pace.csv"

    @property
    def tensorboard(self) -> Path:
        """The curves for TensorBoard, if the user asked for them; no digest covers them."""
        return self.path / "tensorboard"

    @property
    def model(self) -> Path:
        """The server's model after the last round."""
        return self.path / "model.safetensors"

    @property
    def manifest(self) -> Manifest:
        """The digests of these files, written when the run is complete; private."""
        return Manifest(self.path / "digests.json")

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete: its checkpoint is removed last."""
        return self.manifest.file.exists() and not self.checkpoint.exists()

    @contextmanager
    def sealed(self) -> Iterator[None]:
        """Run or attack in the block; note the digests of all files at its end, if it does not fail.

        From then on every command checks the files that it reads. The digests of what an attack writes are
        dropped at the beginning: an attack that was killed can be repeated.
        """
        self.manifest.forget([self.scenario, *self._of_the_attack()])
        yield
        self.manifest.write([*self._of_the_training(), self.counts, *self._of_the_attack()])

    def check(self) -> None:
        """A `UserError` if any file has changed since the run wrote it."""
        self.manifest.check([*self._of_the_training(), self.counts, *self._of_the_attack()])

    def _of_the_training(self) -> list[Path]:
        return [self.scenario, self.transcript, self.truth, self.history, self.model]

    def _of_the_attack(self) -> list[Path]:
        return [self.recovery, self.inference, self.result]

    @classmethod
    def create(cls, path: Path, *, replace: bool) -> RunDirectory:
        """An empty run directory; a run that is already there is replaced only with `replace`."""
        directory = cls(path)
        # A user's own scenario may also be called scenario.toml.
        holds_run = directory.scenario.exists() and directory.transcript.exists()
        present = directory._present()
        if not holds_run and present:
            raise UserError(f"{path} exists and is not a run: choose another --out")
        if holds_run and not replace:
            if not directory.is_finished:
                raise UserError(
                    f"{path} holds an interrupted run: add --resume to continue it, or --force to replace it"
                )
            raise UserError(f"{path} already holds a run: choose another --out, or add --force to replace it")
        if holds_run and (strangers := present - directory._files()):
            raise UserError(
                f"--force would delete {min(strangers).name}, which is not part of the run in {path}: "
                "move it away, or choose another --out"
            )
        with writing(path):
            check_writable(path)
            path.mkdir(parents=True, exist_ok=True)
        directory.clear()
        return directory

    def clear(self) -> None:
        """Remove whatever the folder holds but the lock of the process that works there."""
        with writing(self.path):
            for file in set(self.path.iterdir()) - {self.path / LOCK_FILE}:
                if file.is_dir() and not file.is_symlink():
                    shutil.rmtree(file)
                else:
                    file.unlink()

    def copy_to(self, other: RunDirectory) -> None:
        """Copy what an attack starts from to an empty run directory."""
        with writing(other.path):
            for mine in (self.transcript, self.truth):
                shutil.copytree(mine, other.path / mine.name)
            for mine in (self.scenario, self.counts, self.result):
                shutil.copy2(mine, other.path / mine.name)
        other.manifest.write([other.transcript, other.truth, other.counts])

    @contextmanager
    def kept_unless_refused(self) -> Iterator[None]:
        """A block that fills this new directory: a mistake, or a run that did not start, leaves nothing."""
        try:
            yield
        except (Exception, SystemExit) as error:
            refused = isinstance(error, UserError | NotStartedError)
            if refused or fault_of_users_code(error) is not None:
                self.clear()
            raise

    def _files(self) -> set[Path]:
        """All files that a run leaves in its folder."""
        return {
            self.scenario,
            self.transcript,
            self.counts,
            self.truth,
            self.checkpoint,
            self.recovery,
            self.inference,
            self.result,
            self.report,
            self.manifest.file,
            self.history,
            self.pace,
            self.tensorboard,
            self.model,
        }

    def _present(self) -> set[Path]:
        """The files in the folder, except for half-written ones of a killed process."""
        if not self.path.exists():
            return set()
        if not self.path.is_dir():
            return {self.path}
        return set(self.path.iterdir()) - leftovers(self.path) - {self.path / LOCK_FILE}

    @classmethod
    def resume(cls, path: Path, scenario: str) -> RunDirectory:
        """The directory of an interrupted or finished run of the scenario with this text, or a new one.

        A file of a finished run that has changed since is a `UserError`.
        """
        directory = cls(path)
        if not directory.scenario.exists():
            return cls.create(path, replace=False)
        lines = zip_longest(directory.settings.splitlines(), scenario.splitlines())
        # Titles tell overrides, too, so the settings that differ say more.
        for theirs, ours in sorted(lines, key=lambda pair: (pair[0] or "").startswith("title = ")):
            if theirs != ours:
                raise UserError(
                    f"--resume: {path} holds a run of another scenario, "
                    f"with the line {theirs or ''!r} instead of {ours or ''!r}"
                )
        for folder in (path, directory.transcript, directory.truth):
            check_regular(folder)
        with writing(path):
            check_writable(path)
            for leftover in leftovers(path):
                leftover.unlink()
        if directory.is_finished:
            directory.check()
        return directory

    @classmethod
    def open(cls, path: Path, *, attacked: bool = False) -> RunDirectory:
        """The directory of a finished run; with `attacked`, it must hold a recovery too.

        Files that are read for it and have changed since the run wrote them are a `UserError`.
        """
        directory = cls(path)
        needs = [
            directory.scenario,
            directory.transcript,
            directory.counts,
            directory.truth,
            directory.result,
        ]
        for needed in [*needs, directory.manifest.file, *([directory.recovery] if attacked else [])]:
            if not needed.exists():
                raise UserError(f"{path} is not a finished run: {needed.name} is missing")
        # A report shows nothing of the sums, which may be large.
        read = [directory.scenario, directory.truth, *directory._of_the_attack()] if attacked else needs
        directory.manifest.check(read)
        return directory

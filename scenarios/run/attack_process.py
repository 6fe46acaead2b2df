"""Attacks in a process of their own, which is given the view and can open no file of the run.

The process starts early, so that its imports take place beside the training. Each attack gets a session: a
fork that knows its imports and what the session tells it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import NotFiniteError, ProblemError, Recovery
from attacks.inference.attack import Guesses, InferenceAttack, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.process.channel import Channel, Kind, unpacked
from attacks.process.requests import BeginInference, Disaggregate, Infer, Request
from attacks.process.serve import Start
from attacks.settings import AttackSettings
from attacks.view import AttackerView
from fedsim.core.confinement import Confinement
from fedsim.core.errors import ProcessLostError, UserError
from fedsim.core.progress import Progress, silent
from scenarios.run.attack_start import search_path, started_process

_PACKAGES = ("fedsim", "analytics", "attacks")
"""What an attack may import of this project."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/opt/gurobi")
_SHARED = ("/dev", "/tmp/ray")
"""Devices, and the folder of a Ray cluster whose workers a solver may use."""


def attack_process(settings: AttackSettings, *runs: Path) -> AttackProcess:
    """A process for these attacks that can open no file of the `runs`.

    It ends with this process. The next run gets the same one if it may open the same files: starting one
    costs about a second, and a session of it costs next to nothing.
    """
    global _process  # noqa: PLW0603
    access = Access.without(*(run.resolve() for run in runs))
    if _process is not None and not _process.usable_for(access):
        _process.close()
        _process = None
    if _process is None:
        _process = AttackProcess(access, [name for attack in settings.inference for name in attack.imports])
        atexit.register(_process.close)
    return _process


class AttackProcess:
    """A confined process that answers attacks, one forked session for each."""

    def __init__(self, access: Access, modules: Sequence[str] = ()) -> None:
        self._access, self._started = access, started_process()
        self._channel = Channel(self._started.channel)
        start = Start(
            listable=access.listable,
            readable=access.readable,
            writable=(*access.writable, Path(self._started.scratch.name)),
            modules=modules,
        )
        self._channel.send(Kind.REQUEST, pickle.dumps(start))
        self._confinement: Confinement | None = None

    def usable_for(self, access: Access) -> bool:
        """Whether it runs, belongs to this process (not to its parent), and may open the same files."""
        return self._started.is_ours and self._access == access

    @property
    def confinement(self) -> Confinement:
        """Who refuses to open other files; waits until the process is ready."""
        if self._confinement is None:
            _, values = _answer(self._channel, unwatched)
            self._confinement = Confinement(values["confinement"])
        return self._confinement

    @contextmanager
    def session(self) -> Iterator[AttackSession]:
        """A fresh fork for one attack."""
        confinement = self.confinement
        ours, theirs = socket.socketpair()
        with theirs:
            self._channel.send(Kind.REQUEST, b"", [theirs.fileno()])
        channel = Channel(ours)
        try:
            yield AttackSession(channel, confinement)
        finally:
            channel.close()

    def close(self) -> None:
        """End the process and its sessions, if they are this process's own."""
        self._started.close()


_process: AttackProcess | None = None


class AttackSession:
    """One attack in its own fork of the attack process."""

    def __init__(self, channel: Channel, confinement: Confinement) -> None:
        self._channel, self._confinement = channel, confinement
        self.cpu_seconds = 0.0
        """Processor time of all answers so far."""

    def disaggregate(
        self,
        settings: AttackSettings,
        view: AttackerView,
        *,
        seed: int,
        progress: Progress = silent,
        device: str = "cpu",
    ) -> Recovery:
        """What `settings.run` returns for the view, made where nothing else is known."""
        request, file = Disaggregate.of(settings, view, seed, device)

        def watch(done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
            progress(done, total)

        try:
            arrays, values = self._ask(request, watch, [file])
        finally:
            os.close(file)
        return Disaggregate.recovery(arrays, values, confinement=self._confinement)

    def begin_inference(self, attack: InferenceAttack, knowledge: Knowledge) -> None:
        """Tell an inference attack what it knows besides the evidence."""
        self._ask(BeginInference(attack, replace(knowledge, notes={})), unwatched)

    def infer(self, evidence: Evidence, *, seed: int, watch: Watch = unwatched) -> Guesses:
        """What the attack guesses from the evidence."""
        return Infer.guesses(*self._ask(Infer(evidence, seed), watch))

    def _ask(
        self, request: Request, watch: Watch, files: Iterable[int] = ()
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        self._channel.send(Kind.REQUEST, pickle.dumps(request), list(files))
        arrays, values = _answer(self._channel, watch)
        self.cpu_seconds += float(values.pop("cpu_seconds"))
        return arrays, values


def _answer(channel: Channel, watch: Watch) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The reply to a request; what went wrong there is raised here."""
    while (message := channel.receive()) is not None:
        arrays, values = unpacked(message.payload)
        match message.kind:
            case Kind.REPLY:
                return arrays, values
            case Kind.PROGRESS:
                watch(int(values["done"]), int(values["total"]), arrays.get("preview"))
            case Kind.MISTAKE:
                raise _mistake(values)
            case _:
                raise RuntimeError(f"the attack failed in its own process:\n{values['message']}")
    raise ProcessLostError("the process of the attack ended before its answer: killed, or out of memory")


def _mistake(values: dict[str, Any]) -> Exception:
    message = str(values["message"])
    match values["error"]:
        case "not finite":
            return NotFiniteError(message, int(values["row"]))
        case "problem":
            return ProblemError(message)
        case "memory":
            return MemoryError(message)
        case _:
            return UserError(message)


@dataclass(frozen=True)
class Access:
    """The files that an attack process may open: interpreter, libraries, this project, the user's modules."""

    listable: tuple[Path, ...]
    readable: tuple[Path, ...]
    writable: tuple[Path, ...]

    @classmethod
    def without(cls, *runs: Path) -> Access:
        """Everything that attacks need, and nothing beneath the folders of these runs."""

        def holds_run(path: Path) -> bool:
            return any(run.is_relative_to(path) for run in runs)

        packages = [Path(place) for name in _PACKAGES for place in _locations(name)]
        libraries = [Path(p) for p in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())]
        found = search_path()
        # A folder that holds the run shows its file names, and is readable but for the branch with the run.
        around = [path for path in found if holds_run(path)]
        beside = [entry for path in around if path.is_dir() for entry in sorted(path.iterdir())]
        readable = [*libraries, *packages, *found, *beside, *map(Path, _SYSTEM), *_licences()]
        compiled = [Path(place) / "training" / "stacked" / "__pycache__" for place in _locations("fedsim")]
        return cls(
            listable=tuple(around),
            readable=tuple(path for path in dict.fromkeys(readable) if not holds_run(path.resolve())),
            writable=(*map(Path, _SHARED), *compiled),
        )


def _locations(package: str) -> list[str]:
    spec = find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec else []


def _licences() -> list[Path]:
    """Where Gurobi looks for its licence."""
    named = os.environ.get("GRB_LICENSE_FILE")
    return [Path.home() / "gurobi.lic", *([Path(named)] if named else [])]

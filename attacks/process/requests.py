"""What an attack process can be asked: to disaggregate a view, and to infer from evidence.

A request holds everything that its attack may know. Its answer is arrays and values, nothing that has to be
unpickled.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import Recovery
from attacks.inference.attack import Guesses, InferenceAttack, Watch
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.settings import AttackSettings
from attacks.view import AttackerView
from fedsim.core.plugins import remember

Reply = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""Named arrays and JSON values."""


@dataclass
class Session:
    """What one session remembers from request to request: the inference attack that it is for, if any.

    Requests come in an order in which nothing that was worked out from the truth can help: a session that has
    been shown an oracle's evidence is not asked about recovered updates again.
    """

    attack: InferenceAttack | None = None
    knowledge: Knowledge | None = None


class Request(ABC):
    """A question that an attack process answers."""

    @abstractmethod
    def answer(self, session: Session, files: tuple[int, ...], watch: Watch) -> Reply:
        """Run the attack; `files` are open descriptors that came with the request."""


@dataclass(frozen=True)
class Mapped:
    """Where the entries of an array stand in a file: enough to map it, without a path."""

    shape: tuple[int, ...]
    dtype: str
    offset: int

    def array(self, descriptor: int) -> NDArray[Any]:
        """The array, mapped read-only from an open file."""
        with os.fdopen(descriptor, "rb") as file:
            return np.memmap(file, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape)


def handed_over(array: NDArray[Any]) -> tuple[Mapped, int]:
    """Where an array stands, and an open file that holds it: its own file, or a nameless copy."""
    if isinstance(array, np.memmap) and array.filename is not None:
        descriptor = os.open(array.filename, os.O_RDONLY)
        return Mapped(array.shape, array.dtype.str, array.offset), descriptor
    with tempfile.TemporaryFile() as file:
        np.ascontiguousarray(array).tofile(file)
        file.flush()
        return Mapped(array.shape, array.dtype.str, 0), os.dup(file.fileno())


@dataclass(frozen=True, eq=False)
class Disaggregate(Request):
    """Recover participation and updates from a view; the sums come as an open file."""

    settings: AttackSettings
    view: AttackerView
    sums: Mapped
    seed: int
    device: str = "cpu"

    @classmethod
    def of(
        cls, settings: AttackSettings, view: AttackerView, seed: int, device: str = "cpu"
    ) -> tuple[Disaggregate, int]:
        """The request, and the file to send with it."""
        sums, file = handed_over(view.transcript.aggregates)
        nothing = np.empty((0, view.transcript.aggregates.shape[1]), dtype=np.float32)
        bare = AttackerView(replace(view.transcript, aggregates=nothing), view.counts)
        return cls(settings, bare, sums, seed, device), file

    def answer(self, session: Session, files: tuple[int, ...], watch: Watch) -> Reply:
        """The arrays of a `Recovery`."""
        transcript = replace(self.view.transcript, aggregates=self.sums.array(files[0]))
        view = AttackerView(transcript, self.view.counts)
        remember(self.settings.solver)
        rng = np.random.default_rng(self.seed)
        recovery = self.settings.run(view, rng=rng, progress=watch, device=self.device)
        return recovery.arrays(), {"solver": recovery.solver, "seconds": recovery.seconds}

    @staticmethod
    def recovery(
        arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any], *, confinement: str
    ) -> Recovery:
        """The recovery that a reply holds."""
        solver, seconds = str(values["solver"]), float(values["seconds"])
        return Recovery(**arrays, solver=solver, seconds=seconds, confinement=confinement)


@dataclass(frozen=True, eq=False)
class BeginInference(Request):
    """Tell an attack what it knows besides the evidence; what it works out from that alone it may keep."""

    attack: InferenceAttack
    knowledge: Knowledge

    def answer(self, session: Session, files: tuple[int, ...], watch: Watch) -> Reply:
        """Nothing: the attack waits for evidence."""
        import torch

        # As on devices: networks are small, and one thread gives the same digits on every machine.
        torch.set_num_threads(1)
        remember(self.attack)
        session.attack, session.knowledge = self.attack, self.knowledge
        return {}, {}


@dataclass(frozen=True, eq=False)
class Infer(Request):
    """Guess what lies behind evidence, with the attack that this session has begun."""

    evidence: Evidence
    seed: int

    def answer(self, session: Session, files: tuple[int, ...], watch: Watch) -> Reply:
        """The guesses, and the steps that they took."""
        import torch

        assert session.attack is not None and session.knowledge is not None, "an inference has to be begun"
        # For layers that draw random numbers, such as dropout.
        torch.manual_seed(self.seed % 2**63)
        rng = np.random.default_rng(self.seed)
        found = session.attack.infer(self.evidence, session.knowledge, rng=rng, watch=watch)
        return {"values": found.values}, {"iterations": found.iterations}

    @staticmethod
    def guesses(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Guesses:
        """The guesses that a reply holds."""
        return Guesses(arrays["values"], int(values["iterations"]))

"""One client's column as a mixed-integer program, and the solvers that work through clients one by one.

A backend (`highs`, `gurobi`) has one file: it builds the program, solves it and translates the answer.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.verdict import Candidates, excludes, judge
from attacks.disaggregation.recovery import UNKNOWN, Columns
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.space.subspace import Subspace
from fedsim.core.progress import Progress, silent

SOFT_COUNT_WEIGHT = 0.1
"""Weight of a noisy count's misfit against the distance from the space (the paper's λ)."""


@dataclass(frozen=True, eq=False)
class ColumnProgram:
    """Binary p (rounds,) between `lower` and `upper`, near the space, with the client's counts.

    `complement` (rounds, rounds − rank) is an orthonormal basis of the space's orthogonal complement: the
    distance of p from the space is the norm of complementᵀ p. If `tolerance` is not None, the space is exact,
    and every component of complementᵀ p must be within the tolerance. Otherwise the distance is minimised.
    `windows` (n, rounds) 0/1 and `counts` (n,) are met exactly. `soft_windows` and `soft_counts` come from
    noisy counts; their misfit is part of the objective.
    """

    complement: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    windows: NDArray[np.float64]
    counts: NDArray[np.float64]
    soft_windows: NDArray[np.float64]
    soft_counts: NDArray[np.float64]
    tolerance: float | None

    @classmethod
    def of(
        cls,
        instance: Instance,
        complement: NDArray[np.float64],
        client: int,
        *,
        tolerance: float | None,
    ) -> ColumnProgram:
        """The program of one client."""
        rows = instance.windows.constraints(client)
        incidence = np.zeros((len(rows), instance.rounds))
        for i, row in enumerate(rows):
            incidence[i, row.start : row.stop] = 1
        counts = np.array([row.count for row in rows])
        soft = np.array([row.sd > 0 for row in rows], dtype=np.bool_)
        known = instance.known[client]
        return cls(
            complement=complement,
            lower=np.where(known == 1, 1.0, 0.0),
            upper=np.where(known == 0, 0.0, 1.0),
            windows=incidence[~soft],
            counts=counts[~soft],
            soft_windows=incidence[soft],
            soft_counts=counts[soft],
            tolerance=tolerance,
        )

    def distance(self, column: NDArray[np.uint8]) -> float:
        """Squared distance of a column from the space."""
        return float(np.sum((column @ self.complement) ** 2))


class BackendError(Exception):
    """A backend that is missing or refuses the program; the message is the reason for a recovery."""


class BuiltProgram(Protocol):
    """A program inside a backend."""

    def nearest(self, start: NDArray[np.uint8] | None) -> tuple[NDArray[np.uint8] | None, bool]:
        """The best column found, or None, and whether the search finished; `start` is a first guess."""
        ...

    def bound_besides(self, column: NDArray[np.uint8]) -> float:
        """A lower bound on the distance of every other column from the space; infinite if there is none."""
        ...


class Backend(Protocol):
    """A session with a mixed-integer programming library."""

    def build(self, program: ColumnProgram) -> AbstractContextManager[BuiltProgram]:
        """The program as the library wants it; leaving the context frees it."""
        ...


class ColumnSolver(AbstractSolver):
    """One client's column after the other.

    `time_limit_s` is the limit for one column. With `prove`, a second search shows that no other column with
    the counts lies in the space; it takes at most as long again.
    """

    time_limit_s: PositiveFloat = 60.0
    prove: bool = True

    needs_counts: ClassVar[bool] = True
    models_noise: ClassVar[bool] = False
    can_prove: ClassVar[bool] = True

    @abstractmethod
    def backend(self) -> AbstractContextManager[Backend]:
        """Open the library; a `BackendError` if it is missing, or later if it refuses a program."""

    def tolerance(self, instance: Instance) -> float | None:
        """See `ColumnProgram`."""
        return rounding_tolerance(instance)

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client. Uses no randomness."""
        found = Candidates.none(instance)
        self.search(instance, instance.searchable, found, progress=progress)
        return judge(instance, found, solver=self.name, prove=self.prove)

    def search(
        self,
        instance: Instance,
        clients: NDArray[np.intp],
        found: Candidates,
        *,
        progress: Progress = silent,
    ) -> None:
        """Look for the columns of some clients, starting from what `found` holds, and put them there."""
        complement, tolerance = orthogonal_complement(instance.subspace), self.tolerance(instance)
        try:
            with self.backend() as backend:
                for done, client in enumerate(clients.tolist()):
                    progress(done, len(clients))
                    program = ColumnProgram.of(instance, complement, client, tolerance=tolerance)
                    with backend.build(program) as built:
                        self._search_one(instance, program, built, client, found)
        except BackendError as error:
            found.reason[clients] = str(error)

    def _search_one(
        self, instance: Instance, program: ColumnProgram, built: BuiltProgram, client: int, found: Candidates
    ) -> None:
        guess = found.columns[client]
        column, finished = built.nearest(None if (guess == UNKNOWN).any() else guess)
        limit = f"{self.time_limit_s:g} s"
        if column is None:
            found.reason[client] = (
                "no column has the counts" if finished else f"{self.name} found no column within {limit}"
            )
            return
        found.offer(np.array([client]), column[None], np.array([program.distance(column)]))
        if not finished:
            found.reason[client] = f"best column of {self.name} after {limit}; the search had not ended"
        elif self.prove and instance.exact:
            found.proved[client] = excludes(instance, built.bound_besides(column))


def orthogonal_complement(subspace: Subspace) -> NDArray[np.float64]:
    """(rounds, rounds − rank) orthonormal basis of everything orthogonal to the space."""
    Q, _ = np.linalg.qr(subspace.basis, mode="complete")
    return np.asarray(Q[:, subspace.rank :])


def rounding_tolerance(instance: Instance) -> float | None:
    """How far a right column may seem to be from an exact space; None if sums or counts have noise."""
    if not instance.exact:
        return None
    return float(100 * max(instance.subspace.angle * np.sqrt(instance.rounds), 1e-7))


def other_than(column: NDArray[np.uint8]) -> tuple[NDArray[np.float64], float]:
    """(a, b) such that a·q ≥ b holds for every binary q but `column`."""
    a = 1 - 2 * column.astype(np.float64)
    return a, 1.0 - float(column.sum(dtype=np.int64))

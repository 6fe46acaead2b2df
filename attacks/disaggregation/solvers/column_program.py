"""One client's column as a mixed-integer program: what the exact solvers have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.subspace import Subspace

COUNT_WEIGHT = 0.1
"""Weight of a noisy count's misfit against the distance from the space (the paper's λ)."""


@dataclass(frozen=True, eq=False)
class ColumnProgram:
    """Binary p (rounds,) between `lower` and `upper`, near the space, with the client's counts.

    `tolerance`, if not None, bounds every component of complementᵀ p: the space is exact, and a column is
    wanted that lies in it. Otherwise the distance is what to minimise.

    `complement` (rounds, rounds − rank) is an orthonormal basis of what the space is not: the distance is
    the norm of complementᵀ p. `windows` (n, rounds) 0/1 and `counts` (n,) are met exactly; `soft_windows`
    and `soft_counts` come from noisy counts and are met as well as the distance allows.
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
        problem: DisaggregationProblem,
        complement: NDArray[np.float64],
        client: int,
        *,
        tolerance: float | None,
    ) -> ColumnProgram:
        """The program of one client."""
        rows = problem.windows.constraints(client)
        incidence = np.zeros((len(rows), problem.rounds))
        for i, row in enumerate(rows):
            incidence[i, row.start : row.stop] = 1
        counts = np.array([row.count for row in rows])
        soft = np.array([row.sd > 0 for row in rows], dtype=np.bool_)
        known = problem.windows.of(np.array([client])).known()[0]
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


def orthogonal_complement(subspace: Subspace) -> NDArray[np.float64]:
    """(rounds, rounds − rank) orthonormal basis of everything orthogonal to the space."""
    Q, _ = np.linalg.qr(subspace.basis, mode="complete")
    return np.asarray(Q[:, subspace.rank :])


def rounding_tolerance(problem: DisaggregationProblem, subspace: Subspace) -> float | None:
    """How far a right column may seem to be from an exact space; None if there is noise."""
    if not (subspace.exact and problem.windows.exact):
        return None
    return float(100 * max(subspace.angle * np.sqrt(problem.rounds), 1e-7))


def other_than(column: NDArray[np.uint8]) -> tuple[NDArray[np.float64], float]:
    """(a, b) such that a·q ≥ b holds for every binary q but `column`."""
    a = 1 - 2 * column.astype(np.float64)
    return a, 1.0 - float(column.sum(dtype=np.int64))

"""The column space of the aggregates, which contains every client's participation column.

Without noise A = P G has the column space of P whenever A's rank is the number of clients. With noise the
space of the largest singular values stands in for it. A is read in slices: memory holds a few matrices of
rounds × rounds or rounds × clients.

There are two ways to the same space. The eigenvectors of the Gram matrix A Aᵀ are the least-squares choice
under noise. A sketch is faster for many rounds, and good enough without noise. Small and noisy problems use
the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.gram import gram
from attacks.disaggregation.space.sketch import Sketch

BLOCK_ROWS = 512
"""Clients in one block, where all of them would need matrices of clients × rounds."""
GRAM_ROUNDS = 1024
"""Rounds up to which the Gram matrix is always used: its eigendecomposition takes about a second."""
EXACT_ANGLE = 2e-3
"""Angle below which the space counts as exact: a wrong binary column is never that close to it."""
ROUNDING_MARGIN = 4
"""Singular values up to this multiple of the estimated rounding error count as zero."""


@dataclass(frozen=True, eq=False)
class Subspace:
    """An orthonormal basis U (rounds, rank) of the aggregates' column space, float64.

    `spectrum` holds the kept singular values of A, largest first (None after a sketch, which does not
    compute them). `noise` is the root mean square of the discarded singular values relative to the kept.
    `angle` estimates the sine of the largest angle between U and the space without rounding or noise: the
    first discarded singular value over the last kept one. `rank` is min(`num_clients`, numerical rank of A).
    """

    basis: NDArray[np.float64]
    spectrum: NDArray[np.float64] | None
    noise: float
    angle: float
    num_clients: int
    sketch: Sketch | None = None

    def sharpened(self) -> Subspace:
        """The same space as accurately as A determines it, for proofs. It takes time only after a sketch."""
        if self.sketch is None:
            return self
        sharp = self.sketch.sharpened()
        return replace(self, basis=sharp.basis, angle=sharp.angle, sketch=None)

    @property
    def rank(self) -> int:
        """Dimensions kept."""
        return int(self.basis.shape[1])

    @property
    def exact(self) -> bool:
        """Whether A is free of noise up to rounding."""
        return self.angle < EXACT_ANGLE

    @cached_property
    def single(self) -> NDArray[np.float32]:
        """The basis in single precision, for products with all clients at every step."""
        return self.basis.astype(np.float32)

    def residual(self, columns: NDArray[Any]) -> NDArray[np.float64]:
        """(K,) squared distance of each row of `columns` (K, rounds) from the space.

        Single precision is enough: the residual vector is computed, not a difference of squares.
        """
        U = self.single
        residual = np.empty(len(columns))
        for block in row_blocks(len(columns)):
            p = columns[block].astype(np.float32)
            rest = p - (p @ U) @ U.T
            residual[block] = np.einsum("kr,kr->k", rest, rest, dtype=np.float64)
        return residual


def find_subspace(problem: DisaggregationProblem, *, rng: np.random.Generator) -> Subspace:
    """The column space of a problem's aggregates, truncated to its number of clients.

    Without a report and without `num_clients`, the number of clients is the numerical rank or, under noise,
    the place of the widest gap in the spectrum.
    """
    clients = problem.num_clients or (len(problem.clients) if problem.counts is not None else None)
    A = problem.aggregates
    if clients is not None and problem.rounds > GRAM_ROUNDS and problem.rounds > clients:
        subspace = _from_sketch(A, clients, rng)
        if subspace.exact:
            return subspace
    return _from_gram(A, clients)


def row_blocks(rows: int) -> Iterator[slice]:
    """Slices over all rows (clients), small enough to keep temporary matrices small."""
    return (slice(start, start + BLOCK_ROWS) for start in range(0, rows, BLOCK_ROWS))


def _from_sketch(A: NDArray[Any], clients: int, rng: np.random.Generator) -> Subspace:
    sketch = Sketch.of(A, clients, rng)
    usable = sketch if sketch.basis.shape[1] else None
    return Subspace(sketch.basis, None, sketch.relative_noise, sketch.angle, clients, usable)


def _from_gram(A: NDArray[Any], clients: int | None) -> Subspace:
    from scipy.linalg import eigh

    K = gram(A)
    occupied = int((np.diag(K) > 0).sum())
    values, vectors = eigh(K, overwrite_a=True, check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    singular = np.sqrt(np.maximum(values, 0))
    # The eigenvalues of a Gram matrix resolve singular values down to √eps of the largest only.
    floor = singular[0] * np.sqrt(np.finfo(np.float64).eps * len(values)) * ROUNDING_MARGIN
    numerical = int((singular > max(floor, _rounding(A, singular))).sum())
    if clients is None:
        clients = _estimated_rank(singular[:occupied], numerical)
    rank = min(clients, numerical)
    kept, discarded = singular[:rank], singular[rank:]
    if rank == 0:
        return Subspace(np.zeros((len(K), 0)), kept, 0.0, 0.0, clients)
    noise = float(np.sqrt((discarded**2).sum() / (kept**2).sum()))
    # So the angle is never smaller than that resolution, even if the discarded values are.
    first = max(float(discarded[0]) if len(discarded) else 0.0, float(floor) * 1e-2)
    return Subspace(np.ascontiguousarray(vectors[:, :rank]), kept, noise, first / float(kept[-1]), clients)


def _rounding(A: NDArray[Any], singular: NDArray[np.float64]) -> float:
    """The largest singular value that rounding A's entries to its own precision can cause."""
    if A.dtype.kind != "f":
        return 0.0
    eps = float(np.finfo(A.dtype).eps)
    return eps * float(np.sqrt((singular**2).sum() / A.shape[0])) * ROUNDING_MARGIN


def _estimated_rank(singular: NDArray[np.float64], numerical: int) -> int:
    """The numerical rank or, if that is full, the place where the singular values fall most steeply.

    `singular` has one value for every round that is not empty.
    """
    if numerical < len(singular):
        return max(numerical, 1)
    ratio = singular[:-1] / np.maximum(singular[1:], np.finfo(np.float64).tiny)
    return int(np.argmax(ratio)) + 1 if len(ratio) else 1

"""The column space of the aggregates, which holds every client's participation column.

Without noise A = P G has the column space of P whenever A's rank is the number of clients. With noise
the space of the largest singular values stands in for it. Nothing here needs memory for more than a few
rounds × rounds or rounds × clients matrices: A is read in slices of its columns.

Two ways to the same space. A *sketch*, the QR factorisation of as many random combinations of A's
columns as there are clients (and a few more, to see the rank end), costs rounds · clients² and is enough
when there is no noise. The eigenvectors of the *Gram* matrix A Aᵀ cost rounds³ and are the least-squares
choice with noise. Small problems and noisy ones use the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.problem import DisaggregationProblem

SLICE_ENTRIES = 1 << 24
"""Entries of A that are read at a time (128 MB in double precision)."""
BLOCK_ROWS = 1024
"""Clients that are handled at a time where a batch of all would need matrices of clients × rounds."""
GRAM_ROUNDS = 1024
"""Up to so many rounds an eigendecomposition is a matter of a second."""
OVERSAMPLING = 8
"""Combinations beyond the number of clients: they must vanish if the rank is what it should be."""
EXACT_ANGLE = 1e-4
"""Below this tilt the space is taken for exact: a wrong binary column is never that close to it."""


@dataclass(frozen=True, eq=False)
class Subspace:
    """An orthonormal basis U (rounds, rank) of the aggregates' column space, float64.

    `spectrum` holds the kept singular values of A, largest first (None after a sketch, which does not
    compute them). `noise` is the root mean square of the discarded ones relative to the kept. `angle`
    estimates the sine of the largest angle between U and the space without rounding or noise: the first
    discarded over the last kept singular value. `rank` is min(number of clients, numerical rank of A).
    """

    basis: NDArray[np.float64]
    spectrum: NDArray[np.float64] | None
    noise: float
    angle: float
    num_clients: int

    @property
    def rank(self) -> int:
        """Dimensions kept."""
        return int(self.basis.shape[1])

    @property
    def exact(self) -> bool:
        """Whether A is free of noise up to rounding."""
        return self.angle < EXACT_ANGLE

    def residual(self, columns: NDArray[Any]) -> NDArray[np.float64]:
        """(K,) squared distance of each row of `columns` (K, rounds) from the space."""
        U = self.basis
        residual = np.empty(len(columns))
        for block in row_blocks(len(columns)):
            rest = columns[block] - (columns[block].astype(np.float64) @ U) @ U.T
            residual[block] = np.einsum("kr,kr->k", rest, rest)
        return residual


def find_subspace(problem: DisaggregationProblem, *, rng: np.random.Generator) -> Subspace:
    """The column space of a problem's aggregates, truncated to its number of clients.

    Without a report and without `num_clients` the number is the numerical rank, or where the spectrum
    has its widest gap if there is noise.
    """
    clients = problem.num_clients or (len(problem.clients) if problem.counts is not None else None)
    A = problem.aggregates
    if clients is not None and problem.rounds > GRAM_ROUNDS and problem.rounds > clients + OVERSAMPLING:
        subspace = _from_sketch(A, clients, rng)
        if subspace.exact:
            return subspace
    return _from_gram(A, clients)


def _from_gram(A: NDArray[Any], clients: int | None) -> Subspace:
    from scipy.linalg import eigh

    K = gram(A)
    values, vectors = eigh(K, overwrite_a=True, check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    singular = np.sqrt(np.maximum(values, 0))
    floor = singular[0] * np.sqrt(np.finfo(np.float64).eps * len(values)) * 4
    numerical = int((singular > max(floor, _rounding(A, singular))).sum())
    if clients is None:
        clients = _estimated_rank(singular, numerical)
    rank = min(clients, numerical)
    kept, discarded = singular[:rank], singular[rank:]
    if rank == 0:
        return Subspace(np.zeros((len(K), 0)), kept, 0.0, 0.0, clients)
    noise = float(np.sqrt((discarded**2).sum() / (kept**2).sum()))
    # The eigenvalues of a Gram matrix are blind below √eps; the space itself is only that well known.
    first = max(float(discarded[0]) if len(discarded) else 0.0, float(floor) * 1e-2)
    return Subspace(np.ascontiguousarray(vectors[:, :rank]), kept, noise, first / float(kept[-1]), clients)


def _from_sketch(A: NDArray[Any], clients: int, rng: np.random.Generator) -> Subspace:
    from scipy.linalg import qr

    Y = np.zeros((len(A), clients + OVERSAMPLING))
    for part in slices(A):
        Y += part @ rng.standard_normal((part.shape[1], Y.shape[1]))
    Q, R = (
        np.asarray(factor, np.float64)
        for factor in qr(Y, mode="economic", overwrite_a=True, check_finite=False)
    )
    diagonal = np.abs(np.diag(R))
    rank = min(clients, int((diagonal > diagonal[0] * 1e-9).sum()))
    if rank == 0:
        return Subspace(Q[:, :0], None, 0.0, 0.0, clients)
    discarded = float(np.linalg.norm(R[rank:, rank:], 2))
    kept = _smallest_singular_value(R[:rank, :rank], rng)
    noise = discarded / float(np.linalg.norm(R[:rank])) * np.sqrt(len(A) / OVERSAMPLING)
    angle = (
        max(discarded / np.sqrt(OVERSAMPLING) * np.sqrt(clients), np.finfo(np.float64).eps * diagonal[0])
        / kept
    )
    return Subspace(np.ascontiguousarray(Q[:, :rank]), None, noise, float(angle), clients)


def gram(A: NDArray[Any]) -> NDArray[np.float64]:
    """A Aᵀ in double precision, read in slices."""
    K = np.zeros((len(A), len(A)))
    for part in slices(A):
        K += part @ part.T
    return K


def slices(A: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Column slices of A (rounds, some) in double precision, left to right."""
    width = max(1, SLICE_ENTRIES // len(A))
    for start in range(0, A.shape[1], width):
        yield np.asarray(A[:, start : start + width], dtype=np.float64)


def row_blocks(rows: int) -> Iterator[slice]:
    """Slices over so many rows (clients) that temporary matrices stay small."""
    return (slice(start, start + BLOCK_ROWS) for start in range(0, rows, BLOCK_ROWS))


def _rounding(A: NDArray[Any], singular: NDArray[np.float64]) -> float:
    """Singular values that rounding A's entries to its own precision brings about."""
    if A.dtype.kind != "f":
        return 0.0
    eps = float(np.finfo(A.dtype).eps)
    return eps * float(np.sqrt((singular**2).sum() / A.shape[0])) * 4


def _estimated_rank(singular: NDArray[np.float64], numerical: int) -> int:
    """Where the singular values fall most steeply, if they do not end by themselves."""
    if numerical < len(singular):
        return max(numerical, 1)
    ratio = singular[:-1] / np.maximum(singular[1:], np.finfo(np.float64).tiny)
    return int(np.argmax(ratio)) + 1 if len(ratio) else 1


def _smallest_singular_value(R: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Of a triangular matrix, by inverse iteration; a few steps give the size, which is what matters."""
    from scipy.linalg import solve_triangular

    x = rng.standard_normal(len(R))
    size = 1.0
    for _ in range(8):
        x = solve_triangular(R, x / np.linalg.norm(x), check_finite=False)
        x = solve_triangular(R, x, trans="T", check_finite=False)
        size = float(np.linalg.norm(x))
    return float(size**-0.5)

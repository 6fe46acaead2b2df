"""The column space of the aggregates, which holds every client's participation column.

Without noise A = P G has the column space of P whenever A's rank is the number of clients. With noise
the space of the largest singular values stands in for it. Nothing here needs memory for more than a few
rounds × rounds or rounds × clients matrices: A is read in slices of its columns.

Two ways to the same space. A *sketch* takes random combinations of A's columns, a quarter more than there
are clients: as many as clients would be a square random matrix, whose smallest singular value is next to
nothing. A pivoted Cholesky factorisation of their inner products picks the best conditioned among them,
and shows where the rank ends; that costs rounds · clients² and is enough when there is no noise. The
eigenvectors of the *Gram* matrix A Aᵀ cost rounds³ and are the least-squares choice with noise. Small
problems and noisy ones use the Gram matrix.
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
from attacks.disaggregation.space.mapped_memory import SLICE_ENTRIES, release_pages

BLOCK_ROWS = 512
"""Clients that are handled at a time where a batch of all would need matrices of clients × rounds."""
GRAM_ROUNDS = 1024
"""Up to so many rounds an eigendecomposition is a matter of a second."""
OVERSAMPLING = 1.25
"""Combinations in a sketch, relative to the number of clients."""
TERMS = 8
"""Combinations that each of A's columns is part of, with a random sign."""
PROBES = 16
"""Combinations that were not picked, on which the space is tested."""
EXACT_ANGLE = 2e-3
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
    sharpening: _Sharpening | None = None

    def sharpened(self) -> Subspace:
        """The same space as well as A knows it, for proofs; at some cost where it came from a sketch."""
        return self if self.sharpening is None else self.sharpening.of(self)

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
        """The basis in single precision, for what is done to all clients at every step."""
        return self.basis.astype(np.float32)

    def residual(self, columns: NDArray[Any]) -> NDArray[np.float64]:
        """(K,) squared distance of each row of `columns` (K, rounds) from the space.

        Single precision is enough: the rest is computed itself, not as a difference of squares.
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

    Without a report and without `num_clients` the number is the numerical rank, or where the spectrum
    has its widest gap if there is noise.
    """
    clients = problem.num_clients or (len(problem.clients) if problem.counts is not None else None)
    A = problem.aggregates
    if clients is not None and problem.rounds > GRAM_ROUNDS and problem.rounds > clients:
        subspace = _from_sketch(A, clients, rng)
        if subspace.exact:
            return subspace
    return _from_gram(A, clients)


def _from_gram(A: NDArray[Any], clients: int | None) -> Subspace:
    from scipy.linalg import eigh

    K = gram(A)
    occupied = int((np.diag(K) > 0).sum())
    values, vectors = eigh(K, overwrite_a=True, check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    singular = np.sqrt(np.maximum(values, 0))
    floor = singular[0] * np.sqrt(np.finfo(np.float64).eps * len(values)) * 4
    numerical = int((singular > max(floor, _rounding(A, singular))).sum())
    if clients is None:
        clients = _estimated_rank(singular[:occupied], numerical)
    rank = min(clients, numerical)
    kept, discarded = singular[:rank], singular[rank:]
    if rank == 0:
        return Subspace(np.zeros((len(K), 0)), kept, 0.0, 0.0, clients)
    noise = float(np.sqrt((discarded**2).sum() / (kept**2).sum()))
    # The eigenvalues of a Gram matrix are blind below √eps; the space itself is only that well known.
    first = max(float(discarded[0]) if len(discarded) else 0.0, float(floor) * 1e-2)
    return Subspace(np.ascontiguousarray(vectors[:, :rank]), kept, noise, first / float(kept[-1]), clients)


def _from_sketch(A: NDArray[Any], clients: int, rng: np.random.Generator) -> Subspace:
    from scipy.linalg.blas import dsyrk, dtrsm
    from scipy.linalg.lapack import dpstrf

    Y = _combinations(A, int(OVERSAMPLING * clients) + PROBES, rng)
    R, pivot, rank, _ = dpstrf(dsyrk(1.0, Y, trans=1), lower=0, overwrite_a=1)
    rank, pivot = min(rank, clients), pivot - 1
    if rank == 0 or R[0, 0] == 0:
        return Subspace(np.zeros((len(A), 0)), None, 0.0, 0.0, clients)
    R = np.triu(R[:rank, :rank])
    U = dtrsm(1.0, R, np.asfortranarray(Y[:, pivot[:rank]]), side=1, overwrite_b=1)
    noise = _noise(Y[:, pivot[rank : rank + PROBES]], U, R)
    relative = noise * np.sqrt(Y.shape[1]) / float(np.linalg.norm(Y))
    return Subspace(
        np.ascontiguousarray(U), None, relative, _tilt(noise, U, R, rng), clients, _Sharpening(A, noise, rng)
    )


@dataclass(frozen=True, eq=False)
class _Sharpening:
    """How to know the space of a sketch better: from another sketch, all of whose combinations count.

    A basis of picked combinations has their noise. All of a sketch together, in a step of subspace
    iteration, know the weak directions ten times better, at twice the cost of the basis.
    """

    A: NDArray[Any]
    noise: float
    rng: np.random.Generator

    def of(self, subspace: Subspace) -> Subspace:
        Y = _combinations(self.A, int(OVERSAMPLING * subspace.num_clients) + PROBES, self.rng)
        try:
            V, _ = _orthonormal(Y.T @ subspace.basis)
            U, R = _orthonormal(Y @ V)
        except np.linalg.LinAlgError:
            return subspace
        angle = min(_tilt(self.noise, U, R, self.rng), subspace.angle)
        return replace(subspace, basis=np.ascontiguousarray(U), angle=angle, sharpening=None)


def _tilt(noise: float, U: NDArray[np.float64], R: NDArray[np.float64], rng: np.random.Generator) -> float:
    """The norm of a matrix of so many columns of incoherent noise, over the least of what it may tilt."""
    rounds, rank = U.shape
    return noise * float(1 + np.sqrt(rank / rounds)) / _smallest_singular_value(R, rng)


def _orthonormal(M: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """M = Q R by way of the Cholesky factor of MᵀM, which is quick, and enough for what comes here."""
    from scipy.linalg.blas import dsyrk, dtrsm
    from scipy.linalg.lapack import dpotrf

    R, failed = dpotrf(dsyrk(1.0, M, trans=1), lower=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("columns are dependent")
    return dtrsm(1.0, R, M, side=1), R


def _noise(probes: NDArray[np.float64], U: NDArray[np.float64], R: NDArray[np.float64]) -> float:
    """The noise in one combination, from what is left of combinations outside the space of the picked ones.

    That holds the noise of the probe, and of the picked ones by as much as they take part in the probe.
    """
    from scipy.linalg import solve_triangular

    inside = U.T @ probes
    rest = probes - U @ inside
    share = solve_triangular(R, inside, check_finite=False)
    parts = (1 + (share**2).sum(axis=0)) * (1 - len(R) / len(U))
    floor = np.finfo(np.float64).eps * float(R[0, 0])
    return max(float(np.sqrt((rest**2).sum() / parts.sum())), floor)


def _combinations(A: NDArray[Any], number: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(rounds, number) random combinations of A's columns, in which each has TERMS parts; Fortran order."""
    from scipy.sparse import csr_array

    dim = A.shape[1]
    which, sign = rng.integers(number, size=dim * TERMS), rng.choice([-1.0, 1.0], dim * TERMS)
    parts = csr_array((sign, which, np.arange(0, len(which) + 1, TERMS)), shape=(dim, number)).T.tocsr()
    Y = np.empty((len(A), number), order="F")
    rows = max(1, SLICE_ENTRIES // max(dim, number))
    for start in range(0, len(A), rows):
        block = np.asarray(A[start : start + rows], dtype=np.float64)
        Y[start : start + rows] = (parts @ block.T).T
        release_pages(A)
    return Y


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
    """Where the singular values, one for every round that is not empty, fall most steeply, if they do not
    end by themselves."""
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

"""The column space of noise-free aggregates from random combinations of their columns.

A sketch has a quarter more combinations than there are clients. As many combinations as clients would form a
square random matrix, whose smallest singular value is close to zero. A pivoted Cholesky factorisation of the
combinations' Gram matrix picks the best conditioned ones, and shows where the rank ends. This costs
rounds · clients², where the eigenvectors of the aggregates' Gram matrix cost rounds³.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.mapped_memory import SLICE_ENTRIES, release_pages

OVERSAMPLING = 1.25
"""Combinations in a sketch, relative to the number of clients."""
TERMS = 8
"""Combinations that each column of A is part of, with a random sign."""
PROBES = 16
"""Combinations that were not picked, from which the noise is estimated."""
INVERSE_ITERATIONS = 8
"""Steps of inverse iteration for a smallest singular value; only its order of magnitude matters."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """An orthonormal basis (rounds, rank) of the space of A's random combinations.

    `noise` is the noise in one combination, `relative_noise` the same over the root mean square of all
    combinations. `angle` estimates the sine of the largest angle between the basis and the true space.
    """

    basis: NDArray[np.float64]
    noise: float
    relative_noise: float
    angle: float
    aggregates: NDArray[Any]
    clients: int
    rng: np.random.Generator

    @classmethod
    def of(cls, A: NDArray[Any], clients: int, rng: np.random.Generator) -> Sketch:
        """A sketch of A for at most `clients` dimensions."""
        from scipy.linalg.blas import dsyrk, dtrsm
        from scipy.linalg.lapack import dpstrf

        Y = _combinations(A, clients, rng)
        R, pivot, rank, _ = dpstrf(dsyrk(1.0, Y, trans=1), lower=0, overwrite_a=1)
        rank, pivot = min(rank, clients), pivot - 1
        if rank == 0 or R[0, 0] == 0:
            return cls(np.zeros((len(A), 0)), 0.0, 0.0, 0.0, A, clients, rng)
        R = np.triu(R[:rank, :rank])
        U = dtrsm(1.0, R, np.asfortranarray(Y[:, pivot[:rank]]), side=1, overwrite_b=1)
        noise = _noise(Y[:, pivot[rank : rank + PROBES]], U, R)
        relative = noise * np.sqrt(Y.shape[1]) / float(np.linalg.norm(Y))
        angle = _angle(noise, U, R, rng)
        return cls(np.ascontiguousarray(U), noise, relative, angle, A, clients, rng)

    def sharpened(self) -> Sketch:
        """The space from one step of subspace iteration with all combinations of a second sketch.

        A basis of picked combinations has their noise. All combinations of a sketch together determine the
        weak directions ten times better, at twice the cost of the first basis.
        """
        Y = _combinations(self.aggregates, self.clients, self.rng)
        try:
            V, _ = _cholesky_qr(Y.T @ self.basis)
            U, R = _cholesky_qr(Y @ V)
        except np.linalg.LinAlgError:
            return self
        angle = min(_angle(self.noise, U, R, self.rng), self.angle)
        return replace(self, basis=np.ascontiguousarray(U), angle=angle)


def _combinations(A: NDArray[Any], clients: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(rounds, number) sparse random combinations of A's columns, in Fortran order."""
    from scipy.sparse import csr_array

    dim, number = A.shape[1], int(OVERSAMPLING * clients) + PROBES
    which, sign = rng.integers(number, size=dim * TERMS), rng.choice([-1.0, 1.0], dim * TERMS)
    terms = csr_array((sign, which, np.arange(0, len(which) + 1, TERMS)), shape=(dim, number)).T.tocsr()
    Y = np.empty((len(A), number), order="F")
    rows = max(1, SLICE_ENTRIES // max(dim, number))
    for start in range(0, len(A), rows):
        block = np.asarray(A[start : start + rows], dtype=np.float64)
        Y[start : start + rows] = (terms @ block.T).T
        release_pages(A)
    return Y


def _noise(probes: NDArray[np.float64], U: NDArray[np.float64], R: NDArray[np.float64]) -> float:
    """The noise in one combination, from the parts of the `probes` outside the space of the picked ones.

    Such a part has the noise of the probe, and the noise of the picked combinations that make up the probe.
    """
    from scipy.linalg import solve_triangular

    inside = U.T @ probes
    rest = probes - U @ inside
    share = solve_triangular(R, inside, check_finite=False)
    parts = (1 + (share**2).sum(axis=0)) * (1 - len(R) / len(U))
    floor = np.finfo(np.float64).eps * float(R[0, 0])
    return max(float(np.sqrt((rest**2).sum() / parts.sum())), floor)


def _angle(noise: float, U: NDArray[np.float64], R: NDArray[np.float64], rng: np.random.Generator) -> float:
    """The norm of a noise matrix of U's shape over the smallest singular value of the combinations U R."""
    rounds, rank = U.shape
    return noise * float(1 + np.sqrt(rank / rounds)) / _smallest_singular_value(R, rng)


def _cholesky_qr(M: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """M = Q R from the Cholesky factor of MᵀM: fast, and accurate enough for well conditioned M."""
    from scipy.linalg.blas import dsyrk, dtrsm
    from scipy.linalg.lapack import dpotrf

    R, failed = dpotrf(dsyrk(1.0, M, trans=1), lower=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("columns are linearly dependent")
    return dtrsm(1.0, R, M, side=1), R


def _smallest_singular_value(R: NDArray[np.float64], rng: np.random.Generator) -> float:
    """An estimate for a triangular matrix, by inverse iteration."""
    from scipy.linalg import solve_triangular

    x = rng.standard_normal(len(R))
    size = 1.0
    for _ in range(INVERSE_ITERATIONS):
        x = solve_triangular(R, x / np.linalg.norm(x), check_finite=False)
        x = solve_triangular(R, x, trans="T", check_finite=False)
        size = float(np.linalg.norm(x))
    return float(size**-0.5)

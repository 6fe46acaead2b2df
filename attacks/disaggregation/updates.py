"""Each client's own update, by least squares on the recovered participation.

Clients without a column took part too. Their contribution is not noise with mean zero: leaving it out would
bias everybody else's update. Their counts tell how often they took part on average. These averages enter the
regression as nuisance columns. The remainder has mean zero and shows in the standard errors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.mapped_memory import slices

SINGULAR = 1e-9
"""Relative eigenvalue of the normal equations below which a combination of clients is not determined."""

MOST_SAMPLED = 1024
"""Most entries of an update from which the standard errors are estimated, evenly spread."""
ENTRIES_IN_MEMORY = 1 << 28
"""Most entries of all updates in memory (1 GB in single precision); more are kept in a file."""


@dataclass(frozen=True, eq=False)
class Updates:
    """`values` (K, dim) float32; `error` (K,) is the root mean square of an update's standard errors.

    Both are NaN for clients without a column. If a client's column depends on others' (clients that are
    always together), its value is the least-norm solution and its error is NaN; for a client that never took
    part this value is 0. If there are not more rounds than columns, all errors are NaN.
    """

    values: NDArray[np.float32]
    error: NDArray[np.float64]


def least_squares(
    aggregates: NDArray[Any],
    columns: NDArray[np.uint8],
    averages: NDArray[np.float64],
    resolved: NDArray[np.bool_],
) -> Updates:
    """G of `aggregates` ≈ P G, for the `resolved` (K,) among the `columns` (rounds, K).

    `averages` (K, rounds) are the expected participations, for the clients that are not resolved. The
    aggregates are read once, in slices of their columns.
    """
    rounds, dim = aggregates.shape
    error = np.full(len(resolved), np.nan)
    if not resolved.any():
        # One number in memory, because there may be millions of clients.
        return Updates(np.broadcast_to(np.float32(np.nan), (len(resolved), dim)), error)
    values = _room(len(resolved), dim)
    values[:] = np.nan
    # Counts of zero resolve clients that never took part, perhaps many thousands.
    values[resolved] = 0
    took_part = resolved & columns.any(axis=0)
    if not took_part.any():
        return Updates(values, error)
    wanted = int(took_part.sum())
    # Products of 0/1 matrices are exact in single precision, at half the cost.
    P = columns[:, took_part].astype(np.float32)
    X = np.concatenate((P, _nuisance(averages[~resolved], room=rounds - wanted)), axis=1)
    normal = _NormalEquations.of(X)
    left, filled, sampled = 0.0, 0, 0
    every = -(-dim // MOST_SAMPLED)
    for part in slices(aggregates, aggregates.dtype if aggregates.dtype.kind == "f" else np.float64):
        G = normal.solve(X.T @ part)
        values[took_part, filled : filled + part.shape[1]] = G[:wanted]
        some = slice(-filled % every, None, every)
        rest = part[:, some] - X @ G[:, some].astype(part.dtype)
        left += float(np.einsum("ij,ij->", rest, rest, dtype=np.float64))
        sampled += rest.shape[1]
        filled += part.shape[1]
    spare = rounds - normal.rank
    if spare > 0:
        error[took_part] = np.sqrt(normal.spread[:wanted] * left / spare / sampled)
    return Updates(values, error)


def _room(clients: int, dim: int) -> NDArray[np.float32]:
    """(clients, dim) in memory, or in an unnamed file if memory is too small."""
    if clients * dim <= ENTRIES_IN_MEMORY:
        return np.empty((clients, dim), dtype=np.float32)
    with tempfile.TemporaryFile(prefix="fedsim-updates-") as file:
        # The mapping keeps the unnamed file alive, and the file disappears with it.
        return np.memmap(file, dtype=np.float32, mode="w+", shape=(clients, dim))


def _nuisance(averages: NDArray[np.float64], *, room: int) -> NDArray[np.float32]:
    """(rounds, n) columns that span the expected participation of the clients without a column.

    Only one column, their sum, if `room` (rounds to spare) is too small for more.
    """
    if not len(averages):
        return np.zeros((averages.shape[1], 0), dtype=np.float32)
    filled = np.where(
        np.isnan(averages), np.nanmean(averages) if not np.isnan(averages).all() else 1.0, averages
    )
    U, size, _ = np.linalg.svd(filled.T, full_matrices=False)
    keep = int((size > size[0] * 1e-6).sum()) if size[0] > 0 else 0
    if keep > room // 2:
        total = filled.sum(axis=0)[:, None]
        return np.asarray(total / max(float(np.linalg.norm(total)), 1e-30), dtype=np.float32)
    return np.asarray(U[:, :keep], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class _NormalEquations:
    """XᵀX: a solver, its rank, and the diagonal of its inverse (`spread`).

    If the matrix is singular, solutions have least norm, and `spread` is NaN where a solution is not unique.
    """

    solve: Callable[[NDArray[Any]], NDArray[np.float64]]
    rank: int
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[np.float32]) -> _NormalEquations:
        from scipy.linalg import cho_solve, eigh
        from scipy.linalg.lapack import dpotrf, dtrtri

        N = (X.T @ X).astype(np.float64)
        factor, failed = dpotrf(N, lower=1)
        if not failed and np.diag(factor).min() ** 2 > SINGULAR * np.diag(N).max():
            inverse, _ = dtrtri(factor, lower=1)
            spread = np.einsum("ij,ij->j", inverse, inverse)
            return cls(lambda right: np.asarray(cho_solve((factor, True), right)), len(N), spread)
        values, vectors = eigh(N)
        kept = values > SINGULAR * values[-1]
        pseudo = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        determined = np.abs(np.einsum("ij,ji->i", pseudo, N) - 1) < 1e-6
        spread = np.where(determined, np.maximum(np.diag(pseudo), 0), np.nan)
        return cls(lambda right: np.asarray(pseudo @ right), int(kept.sum()), spread)

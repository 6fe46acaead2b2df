"""Each client's own update, by least squares on the recovered participation.

Clients without a column still took part, and what they added is not noise with mean zero: leaving them
out would tilt everybody else's update towards theirs. Their counts tell how often they took part on
average, so those averages enter the regression as nuisance columns, and what remains of them is spread
around zero and shows in the standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.subspace import slices

SINGULAR = 1e-9
"""Relative eigenvalue of the normal equations below which a combination of clients is not determined."""


@dataclass(frozen=True, eq=False)
class Updates:
    """`values` (K, dim) float32, `error` (K,) root mean square over the entries of their standard errors.

    Both are NaN for clients without a column. A client whose column depends on others' (clients that are
    always together) has a value, the smallest that fits, and NaN for its error. Without a round to spare
    all errors are NaN.
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

    `averages` (K, rounds) are expected participations, used for the clients that are not resolved. A is
    read once, in slices of its columns.
    """
    rounds, dim = aggregates.shape
    values = np.full((len(resolved), dim), np.nan, dtype=np.float32)
    error = np.full(len(resolved), np.nan)
    if not resolved.any():
        return Updates(values, error)
    wanted = int(resolved.sum())
    # Sums of products of 0 and 1 are exact in single precision, and half the work.
    P = columns[:, resolved].astype(np.float32)
    X = np.concatenate((P, _nuisance(averages[~resolved], room=rounds - wanted)), axis=1)
    inverse, rank = _inverse_normal(X)
    spread = np.diag(inverse)[:wanted]
    determined = np.abs(np.einsum("ij,ji->i", inverse[:wanted], (X.T @ P).astype(np.float64)) - 1) < 1e-6
    solver = inverse[:wanted]
    left = 0.0
    filled = 0
    for part in slices(aggregates):
        right = X.T @ part
        G = inverse @ right if X.shape[1] > wanted else solver @ right
        values[resolved, filled : filled + part.shape[1]] = G[:wanted]
        left += float(((part - X @ G) ** 2).sum())
        filled += part.shape[1]
    spare = rounds - rank
    if spare > 0:
        error[resolved] = np.where(determined, np.sqrt(np.maximum(spread, 0) * left / spare / dim), np.nan)
    return Updates(values, error)


def _nuisance(averages: NDArray[np.float64], *, room: int) -> NDArray[np.float32]:
    """(rounds, n) columns that span the expected participation of the clients without a column.

    One column, their sum, if there are not enough rounds for more.
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


def _inverse_normal(X: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
    """(XᵀX)⁺ and the rank of X."""
    from scipy.linalg import eigh
    from scipy.linalg.lapack import dpotrf, dpotri

    N = (X.T @ X).astype(np.float64)
    factor, failed = dpotrf(N, lower=1)
    if not failed and np.diag(factor).min() ** 2 > SINGULAR * np.diag(N).max():
        inverse, _ = dpotri(factor, lower=1)
        lower = np.tril(inverse)
        return lower + np.tril(lower, -1).T, len(N)
    values, vectors = eigh(N)
    kept = values > SINGULAR * values[-1]
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T, int(kept.sum())

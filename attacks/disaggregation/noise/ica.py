"""Soft columns from noisy aggregates without counts: independent component analysis.

Clients take part independently, so the columns of P are independent sources, the rounds are samples, and the
column space is an unknown rotation of the sources. The right rotation is the one whose columns look least
like sums of many sources. Skewness, the textbook contrast for rare events, fails with few rounds: a
combination that is large in a single round has a skewness of about √clients · clients / rounds, more than
any true column. The contrast used here is flat above the level of a one, so that single rounds cannot
dominate it: a step moves the columns of W along Zᵀ min(max(ZW, 0), level)² and makes them orthogonal again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEVEL = 2.5
"""Level in standard deviations above which the contrast is flat, if the participation rate is unknown."""
ROTATION_TOLERANCE = 1e-6
"""Largest 1 − cosine between the old and new columns of W at which the iteration has converged."""
TWO_MEANS_STEPS = 50
"""Iterations of two-means clustering."""


def one_level(rate: float) -> float:
    """A level just below the ones of a column with this rate, scaled to mean 0 and variance 1."""
    return float(np.clip(0.9 * np.sqrt((1 - rate) / rate), 1.0, 4.0))


def independent_columns(
    basis: NDArray[np.float64], *, level: float, max_iterations: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(rounds, k) uncorrelated combinations of the basis with the highest contrast.

    `basis` (rounds, rank) is orthonormal. Each column of the result has mean 0 and variance 1, and its ones
    are positive. k is the rank, or one less if the space contains the constant column.
    """
    rounds = len(basis)
    left, size, _ = np.linalg.svd(basis - basis.mean(axis=0), full_matrices=False)
    Z = left[:, size > 1e-6] * np.sqrt(rounds)
    W = np.linalg.qr(rng.standard_normal((Z.shape[1], Z.shape[1])))[0]
    for _ in range(max_iterations):
        gradient = Z.T @ np.clip(Z @ W, 0, level) ** 2
        before, W = W, _nearest_rotation(gradient)
        if np.abs(np.einsum("ij,ij->j", before, W)).min(initial=1.0) > 1 - ROTATION_TOLERANCE:
            break
    return np.asarray(Z @ W)


def split_in_two(X: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Ones where an entry of X is nearer to the upper of its column's two levels (two-means clustering)."""
    threshold = (X.min(axis=0) + X.max(axis=0)) / 2
    for _ in range(TWO_MEANS_STEPS):
        above = threshold < X
        ones = above.sum(axis=0).clip(1, len(X) - 1)
        upper = (X * above).sum(axis=0) / ones
        lower = (X * ~above).sum(axis=0) / (len(X) - ones)
        threshold = (upper + lower) / 2
    return np.asarray(threshold < X).astype(np.uint8)


def _nearest_rotation(M: NDArray[np.float64]) -> NDArray[np.float64]:
    left, _, right = np.linalg.svd(M)
    return np.asarray(left @ right)

"""Soft columns from noisy sums, with no counts at all: independent component analysis.

Clients take part independently of each other, so the columns of P are independent sources, the rounds are
samples, and the column space is an unknown rotation of them. A rotation is right when its columns look
least like sums of many others. Skewness, the textbook measure for rare events, fails with few rounds: a
combination that is large in one single round has a skewness of about √clients · clients / rounds, more than
any true column. The contrast here cannot be fooled by single rounds, because it is flat above the level of
a one: the columns W are moved along Zᵀ min(max(ZW, 0), level)², and made orthogonal again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEVEL = 2.5
"""Where the contrast becomes flat, in standard deviations, if the rate is not known."""
SETTLED = 1e-6


def one_level(rate: float) -> float:
    """Where the ones of a column with this rate lie when it is scaled to mean 0 and variance 1, or nearly."""
    return float(np.clip(0.9 * np.sqrt((1 - rate) / rate), 1.0, 4.0))


def independent_columns(
    basis: NDArray[np.float64], *, level: float, max_iterations: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(rounds, k) uncorrelated combinations of the basis, each as one-sided as it can be.

    `basis` (rounds, rank) is orthonormal. The result has mean 0 and variance 1 per column, ones upwards; k is
    the rank, or one less if the space holds the constant column.
    """
    rounds = len(basis)
    left, size, _ = np.linalg.svd(basis - basis.mean(axis=0), full_matrices=False)
    Z = left[:, size > 1e-6] * np.sqrt(rounds)
    W = np.linalg.qr(rng.standard_normal((Z.shape[1], Z.shape[1])))[0]
    for _ in range(max_iterations):
        gradient = Z.T @ np.clip(Z @ W, 0, level) ** 2
        before, W = W, _nearest_rotation(gradient)
        if np.abs(np.einsum("ij,ij->j", before, W)).min(initial=1.0) > 1 - SETTLED:
            break
    return np.asarray(Z @ W)


def split_in_two(X: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Ones where a column of X is nearer to its upper level than to its lower one (two means)."""
    threshold = (X.min(axis=0) + X.max(axis=0)) / 2
    for _ in range(50):
        above = threshold < X
        ones = above.sum(axis=0).clip(1, len(X) - 1)
        upper = (X * above).sum(axis=0) / ones
        lower = (X * ~above).sum(axis=0) / (len(X) - ones)
        threshold = (upper + lower) / 2
    return np.asarray(threshold < X).astype(np.uint8)


def _nearest_rotation(M: NDArray[np.float64]) -> NDArray[np.float64]:
    left, _, right = np.linalg.svd(M)
    return np.asarray(left @ right)

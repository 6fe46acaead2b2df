"""Corrections of a Gram matrix, so that it tells clients apart.

Updates of real models are not independent Gaussian vectors. Each correction handles one difference.

- Independent noise adds to the diagonal only, and tilts the principal space towards busy rounds.
  `off_diagonal_space` fits the entries off the diagonal, and imputes the diagonal.
- All clients share the direction of learning. It has by far the largest eigenvalues, and says nothing about
  who took part. `clipped` bounds the eigenvalues; `outliers` finds those that stand out, for a model of them.
- Updates grow or shrink while a model trains. `level_rounds` removes that trend.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TREND_DEGREE = 3
"""Degree of the polynomial that the logarithm of the energy may follow over time."""
ROUNDS_PER_DEGREE = 10
"""Rounds with energy that the trend needs for each degree of its polynomial."""


def off_diagonal_space(K: NDArray[np.float64], rank: int, *, iterations: int = 30) -> NDArray[np.float64]:
    """(rounds, rank) orthonormal basis of the space that explains K off its diagonal (HeteroPCA)."""
    M = K - np.diag(np.diag(K))
    vectors: NDArray[np.float64] = np.zeros((len(K), rank))
    for _ in range(iterations):
        values, every = np.linalg.eigh(M)
        vectors = every[:, -rank:]
        np.fill_diagonal(M, np.einsum("ij,j,ij->i", vectors, values[-rank:], vectors))
    return vectors


def clipped(K: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """K with no eigenvalue above the median of the `rank` largest."""
    values, vectors = np.linalg.eigh(K)
    return np.asarray((vectors * np.minimum(values, np.median(values[-rank:]))) @ vectors.T)


def outliers(
    K: NDArray[np.float64], *, typical: int, times: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues above `times` the `typical`-th largest: the excess over it (q,), and the vectors (R, q).

    They belong to parts that many updates share.
    """
    values, vectors = np.linalg.eigh(K)
    level = values[-min(typical, len(values))]
    stand_out = values > times * level
    return values[stand_out] - level, vectors[:, stand_out]


def level_rounds(
    K: NDArray[np.float64], cohort_sizes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """K with rounds rescaled so that the energy per participant has no trend over time, and the scales (R,).

    The trend is a cubic in the logarithm of the energy. The trace of the result is the number of rounds,
    unless K is 0.
    """
    energy = np.diag(K) / np.maximum(cohort_sizes, 1)
    used = energy > 0
    if not used.any():
        return K, np.ones(len(K))
    time = np.linspace(-1, 1, len(K))
    degree = min(TREND_DEGREE, max(int(used.sum()) // ROUNDS_PER_DEGREE, 0))
    trend = np.polynomial.Polynomial.fit(time[used], np.log(energy[used]), degree)
    scale = np.exp(-0.5 * trend(time))
    scale *= np.sqrt(len(K) / (np.diag(K) @ scale**2))
    return K * np.outer(scale, scale), scale

"""Inner products of real updates made fit for telling clients apart.

Real updates are not independent Gaussian vectors, and three plain corrections account for it.

- A few coordinates with large, noisy entries would drown all others in an inner product. Dividing every
  coordinate by its standard deviation over the rounds lets each have the same say.
- Independent noise adds to the diagonal of the Gram matrix only, and tilts the space towards busy rounds.
  The space is therefore taken from the entries off the diagonal, which are completed by what it explains.
- What all clients have in common, the direction of learning, has by far the largest eigenvalues and says
  nothing about who took part. Capping eigenvalues at the middle one of the space removes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.subspace import slices


def standardised_gram(aggregates: NDArray[Any]) -> NDArray[np.float64]:
    """(rounds, rounds) inner products of the sums with every coordinate scaled to variance 1 over rounds."""
    K = np.zeros((len(aggregates), len(aggregates)))
    for part in slices(aggregates):
        deviation = part.std(axis=0)
        scaled = part[:, deviation > 0] / deviation[deviation > 0]
        K += scaled @ scaled.T
    return K


def space_off_diagonal(K: NDArray[np.float64], rank: int, *, iterations: int = 30) -> NDArray[np.float64]:
    """(rounds, rank) basis of the space that explains the entries of K off its diagonal (HeteroPCA)."""
    M = K - np.diag(np.diag(K))
    vectors: NDArray[np.float64] = np.zeros((len(K), rank))
    for _ in range(iterations):
        values, every = np.linalg.eigh(M)
        vectors = every[:, -rank:]
        np.fill_diagonal(M, np.einsum("ij,j,ij->i", vectors, values[-rank:], vectors))
    return vectors


def capped(K: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """K with no eigenvalue above the middle one of the `rank` largest."""
    values, vectors = np.linalg.eigh(K)
    return np.asarray((vectors * np.minimum(values, np.median(values[-rank:]))) @ vectors.T)

"""Blind source separation: FastICA (Hyvärinen 1999), all components at once, with tanh as the contrast.

It takes the same steps as scikit-learn's `FastICA(whiten="unit-variance")`, and gives the same digits. The
import of scikit-learn takes longer than most separations.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Rows = NDArray[np.float64]

_TOLERANCE = 1e-4
"""Change of a direction, as one minus a cosine, below which the separation has converged."""


def independent_components(mixtures: Rows, *, iterations: int, seed: int) -> tuple[Rows, int]:
    """(n, n) the combinations of the n mixtures (n, samples) that are most independent, and the iterations.

    Each combination of the mixtures without their means has variance 1. A separation that has not converged
    after `iterations` is returned as it is.
    """
    n, samples = mixtures.shape
    centred = mixtures - mixtures.mean(axis=-1)[:, None]
    u, d = scipy.linalg.svd(centred, full_matrices=False, check_finite=False)[:2]
    u *= np.sign(u[0])
    whitening = (u / d).T[:n]
    white = whitening @ centred
    white *= np.sqrt(samples)
    first = np.random.RandomState(seed).normal(size=(len(white), len(white)))
    rotation, steps = _rotation(white, first, iterations)
    spread = np.std(np.linalg.multi_dot([rotation, whitening, centred]).T, axis=0, keepdims=True)
    return np.asarray((rotation / spread.T) @ whitening), steps


def _rotation(white: Rows, first: Rows, iterations: int) -> tuple[Rows, int]:
    """The rotation of white mixtures that makes them independent, and the iterations that it took."""
    W, steps = _decorrelated(first), 0
    samples = float(white.shape[1])
    while steps < iterations:
        steps += 1
        bent = W @ white
        np.tanh(bent, bent)
        slope = np.array([(1 - row**2).mean() for row in bent])
        new = _decorrelated(bent @ white.T / samples - slope[:, None] * W)
        change = np.abs(np.abs(np.einsum("ij,ij->i", new, W)) - 1).max()
        W = new
        if change < _TOLERANCE:
            break
    return W, steps


def _decorrelated(W: Rows) -> Rows:
    """(W Wᵀ)^(-1/2) W: the rotation nearest to W."""
    values, vectors = scipy.linalg.eigh(W @ W.T)
    # Rounding can make the smallest eigenvalue negative.
    values = np.maximum(values, np.finfo(np.float64).tiny)
    return np.asarray(np.linalg.multi_dot([vectors * (1.0 / np.sqrt(values)), vectors.T, W]))

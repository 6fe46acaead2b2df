"""What a change of the participation matrix does to the covariance Ω of the aggregates, and to its inverse.

W = Ω⁻¹ and H = WKW, with K the Gram matrix of the aggregates, are kept up to date: they give the likelihood
of every alternative. All changes are sums of f gᵀ + g fᵀ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.compilation import compiled

OPTIONS: dict[str, Any] = {
    # Sums may be reordered; but infinite weights are impossible counts.
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
    "nogil": True,
}
"""How all loops of the sampling are compiled."""
_compiled = compiled(**OPTIONS)

IMPOSSIBLE = -1e30
"""Log-likelihood of a change after which Ω would not be positive definite."""


@_compiled
def log_likelihood(
    coordinates: float, a: float, b: float, c: float, aa: float, ab: float, bb: float
) -> float:
    """Change of the log-likelihood when f gᵀ + g fᵀ is added to Ω.

    a = fᵀWf, b = fᵀWg, c = gᵀWg with W = Ω⁻¹, and aa, ab, bb the same with H = WKW.
    """
    determinant = (1 + b) * (1 + b) - a * c
    if determinant <= 0:
        return IMPOSSIBLE
    misfit = np.log(determinant) + (c * aa - 2 * (1 + b) * ab + a * bb) / determinant
    return float(-0.5 * coordinates * misfit)


@_compiled
def add(W: NDArray[np.float64], H: NDArray[np.float64], f: Any, g: Any) -> Any:
    """Bring W = Ω⁻¹ and H = WKW up to date after f gᵀ + g fᵀ, with f and g (rounds,), was added to Ω.

    Returns the inner products a, b, c, aa, ab, bb of `log_likelihood`, as they were before.
    """
    R = len(W)
    Wf, Wg, Hf, Hg = np.zeros(R), np.zeros(R), np.zeros(R), np.zeros(R)
    for i in range(R):
        if f[i] != 0:
            for j in range(R):
                Wf[j] += f[i] * W[i, j]
                Hf[j] += f[i] * H[i, j]
        if g[i] != 0:
            for j in range(R):
                Wg[j] += g[i] * W[i, j]
                Hg[j] += g[i] * H[i, j]
    a, b, c, aa, ab, bb = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(R):
        a += f[i] * Wf[i]
        b += f[i] * Wg[i]
        c += g[i] * Wg[i]
        aa += f[i] * Hf[i]
        ab += f[i] * Hg[i]
        bb += g[i] * Hg[i]
    # Woodbury: W − (Wf Wg) M (Wf Wg)ᵀ with the 2 × 2 matrix M.
    determinant = a * c - (1 + b) * (1 + b)
    m00, m01, m11 = c / determinant, -(1 + b) / determinant, a / determinant
    zf, zg = Wf * m00 + Wg * m01, Wf * m01 + Wg * m11
    tf, tg = Hf - 0.5 * (aa * zf + ab * zg), Hg - 0.5 * (ab * zf + bb * zg)
    for i in range(R):
        for j in range(R):
            W[i, j] -= zf[i] * Wf[j] + zg[i] * Wg[j]
            H[i, j] -= zf[i] * tf[j] + zg[i] * tg[j] + tf[i] * zf[j] + tg[i] * zg[j]
    return a, b, c, aa, ab, bb


@_compiled
def exchange(
    first: NDArray[np.uint8],
    second: NDArray[np.uint8],
    W: NDArray[np.float64],
    H: NDArray[np.float64],
    position: NDArray[np.float64],
    energies: Any,
    places: NDArray[np.int64],
    coordinates: float,
) -> float:
    """Let two columns (n,) with their own `energies` exchange the `places`, where they differ, one by one.

    Columns, W and H stay up to date. Returns the change of the log-likelihood.
    """
    f, g, gain = np.zeros(len(W)), np.empty(len(W)), 0.0
    for x in places:
        # Both clients change in the same round, so it is one change of rank two.
        one = -energies[0] if first[x] == 1 else energies[0]
        two = -energies[1] if second[x] == 1 else energies[1]
        for y in range(len(W)):
            if first[y] or second[y]:
                near = np.exp(-abs(position[x] - position[y]))
                g[y] = near * (one * first[y] + two * second[y])
            else:
                g[y] = 0.0
        f[x], g[x] = 1.0, 0.5 * (one + two)
        a, b, c, aa, ab, bb = add(W, H, f, g)
        gain += log_likelihood(coordinates, a, b, c, aa, ab, bb)
        f[x], first[x], second[x] = 0.0, 1 - first[x], 1 - second[x]
    return gain


@_compiled
def exchange_gain(
    first: NDArray[np.uint8],
    second: NDArray[np.uint8],
    W: NDArray[np.float64],
    H: NDArray[np.float64],
    position: NDArray[np.float64],
    energies: Any,
    rounds: NDArray[np.int64],
    coordinates: float,
) -> float:
    """What `exchange` would return; nothing changes. Only the rounds of the two clients matter."""
    at = np.flatnonzero(first | second)
    w, h = np.empty((len(at), len(at))), np.empty((len(at), len(at)))
    for i in range(len(at)):
        for j in range(len(at)):
            w[i, j], h[i, j] = W[at[i], at[j]], H[at[i], at[j]]
    places = np.searchsorted(at, rounds)
    return exchange(first[at], second[at], w, h, position[at], energies, places, coordinates)

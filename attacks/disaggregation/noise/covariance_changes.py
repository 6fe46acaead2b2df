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
def add(W: NDArray[np.float64], H: NDArray[np.float64], f: Any, g: Any) -> None:
    """Bring W = Ω⁻¹ and H = WKW up to date after f gᵀ + g fᵀ, with f and g (rounds,), was added to Ω."""
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


@_compiled
def change(
    column: NDArray[np.uint8], at: Any, n: int, x: int, position: Any, energy: float, f: Any, g: Any
) -> None:
    """Write f and g (n,) so that Ω changes by f gᵀ + g fᵀ when the entry `x` of a `column` turns around.

    `at` (n,) are the rounds of these places; the client takes part in no others.
    """
    sign = -1.0 if column[x] == 1 else 1.0
    for y in range(n):
        near = np.exp(-abs(position[at[x]] - position[at[y]]))
        f[y], g[y] = 0.0, sign * energy * near if column[y] == 1 else 0.0
    f[x], g[x] = 1.0, 0.5 * sign * energy


@_compiled
def exchange_gain(
    P: NDArray[np.uint8],
    W: NDArray[np.float64],
    H: NDArray[np.float64],
    position: NDArray[np.float64],
    energies: NDArray[np.float64],
    one: int,
    two: int,
    rounds: NDArray[np.int64],
    coordinates: float,
) -> float:
    """Change of the log-likelihood if two clients with their own energies exchange these `rounds`.

    Only the rounds of the two clients matter, so the steps are taken in that block of W and H.
    """
    R, n = P.shape[1], 0
    at, columns = np.empty(R, np.int64), np.empty((2, R), np.uint8)
    where = np.empty(R, np.int64)
    for r in range(R):
        if P[one, r] == 1 or P[two, r] == 1:
            at[n], columns[0, n], columns[1, n], where[r] = r, P[one, r], P[two, r], n
            n += 1
    w, h, f, g = np.empty((n, n)), np.empty((n, n)), np.empty(n), np.empty(n)
    for i in range(n):
        for j in range(n):
            w[i, j], h[i, j] = W[at[i], at[j]], H[at[i], at[j]]
    gain = 0.0
    for r in rounds:
        x = where[r]
        for c in range(2):
            change(columns[c], at, n, x, position, energies[one if c == 0 else two], f, g)
            b, cc, ab, bb = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                if g[i] != 0:
                    b += g[i] * w[x, i]
                    ab += g[i] * h[x, i]
                    ww, hh = 0.0, 0.0
                    for j in range(n):
                        ww += g[j] * w[i, j]
                        hh += g[j] * h[i, j]
                    cc += g[i] * ww
                    bb += g[i] * hh
            gain += log_likelihood(coordinates, w[x, x], b, cc, h[x, x], ab, bb)
            add(w, h, f, g)
            columns[c, x] = 1 - columns[c, x]
    return gain


@_compiled
def exchange(
    P: NDArray[np.uint8],
    W: NDArray[np.float64],
    H: NDArray[np.float64],
    position: NDArray[np.float64],
    energies: NDArray[np.float64],
    one: int,
    two: int,
    rounds: NDArray[np.int64],
) -> None:
    """Let two clients exchange these `rounds`; P, W and H stay up to date."""
    R = P.shape[1]
    every, f, g = np.arange(R), np.empty(R), np.empty(R)
    for r in rounds:
        for c in range(2):
            k = one if c == 0 else two
            change(P[k], every, R, r, position, energies[k], f, g)
            add(W, H, f, g)
            P[k, r] = 1 - P[k, r]

"""Who took part in one sum, given everybody's update: linear detection of all clients together.

With residual A_r − p̄ᵀĜ = δᵀĜ + noise, where δ are the errors of the expected participation p̄, every
client's δ_k is estimated with the others' δ as structured noise of known variance, not as noise like any
other. That the cohort has a known size is one more measurement of δ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

COHORT_SD = 0.3
"""Error allowed in the size of a cohort: its members are 0 or 1 only in the end."""
SETTLED = 1e-5
"""Variance of a participation below which it no longer disturbs the others."""


def detect(
    precision: NDArray[np.float64],
    signal: NDArray[np.float64],
    doubt: NDArray[np.float64],
    missing: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Unbiased estimates of δ (b, n) for b rounds, and their variances.

    `precision` J (b, n, n) and `signal` j (b, n): the likelihood of δ is exp(jᵀδ − δᵀJδ/2). `doubt` V
    (b, n) are the variances of δ before; client k's own is not used for its estimate, which is
    (Qy)_k / Q_kk with Q = (V + J⁻¹)⁻¹ and y = J⁻¹j, with variance 1/Q_kk − V_kk. `missing` (b,) is the
    cohort's size less the expected one, None if unknown.
    """
    cohort = 0.0 if missing is None else COHORT_SD**-2
    if missing is not None:
        signal = signal + cohort * missing[:, None]
    shift, variance = np.empty_like(signal), np.empty_like(signal)
    for r, (J, j, V) in enumerate(zip(precision, signal, doubt, strict=True)):
        Q, Qy = _marginal(J, j, V, cohort)
        shift[r], variance[r] = Qy / Q, 1 / Q - V
    return shift, variance


def _marginal(
    J: NDArray[np.float64], j: NDArray[np.float64], V: NDArray[np.float64], cohort: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q_kk (n,) and (Qy)_k (n,) of one round; `cohort` is to be added to every entry of J.

    With B = V^½ (J + cohort) of the clients in doubt only, and I + B V^½ = L Lᵀ, Q is J − Bᵀ(L Lᵀ)⁻¹B. Among
    those in doubt it is also V^-½ (I − (L Lᵀ)⁻¹) V^-½, whose diagonal takes a third of the work.
    """
    open_ = V > SETTLED
    if not open_.any():
        return np.maximum(J.diagonal() + cohort, np.finfo(np.float64).tiny), j
    sd = np.sqrt(V[open_])
    B = J[open_]
    B += cohort
    B *= sd[:, None]
    square = B[:, open_]
    square *= sd
    square[np.diag_indices_from(square)] += 1
    # The matrix is symmetric; its transpose is in the order of LAPACK, and nothing is copied.
    L = cholesky(square.T, lower=True, overwrite_a=True, check_finite=False)
    Qy = j - cho_solve((L, True), sd * j[open_], check_finite=False) @ B
    Q = J.diagonal() + cohort
    sure = solve_triangular(L, B[:, ~open_], lower=True, check_finite=False)
    Q[~open_] -= np.einsum("ik,ik->k", sure, sure)
    inverse, _ = dtrtri(L, lower=1, overwrite_c=1)
    Q[open_] = (1 - np.einsum("ik,ik->k", inverse, inverse)) / V[open_]
    return np.maximum(Q, np.finfo(np.float64).tiny), Qy

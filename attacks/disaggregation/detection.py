"""Who took part in one sum, given everybody's update: linear detection of all clients together.

With residual A_r − p̄ᵀĜ = δᵀĜ + noise, where δ are the errors of the expected participation p̄, every
client's δ_k is estimated with the others' δ as structured noise of known variance, not as noise like any
other. That the cohort has a known size is one more measurement of δ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    J, j = precision, signal
    if missing is not None:
        J, j = J + COHORT_SD**-2, j + COHORT_SD**-2 * missing[:, None]
    rounds, n = j.shape
    open_ = max(1, int((doubt > SETTLED).sum(axis=1).max()))
    who = np.argsort(-doubt, axis=1, kind="stable")[:, :open_]
    sd = np.sqrt(np.take_along_axis(doubt, who, axis=1))[:, :, None]
    rows = sd * np.take_along_axis(J, who[:, :, None], axis=1)
    square = np.take_along_axis(rows, np.broadcast_to(who[:, None, :], (rounds, open_, open_)), axis=2)
    square = square * sd.transpose(0, 2, 1) + np.eye(open_)
    right = np.concatenate((rows, sd * np.take_along_axis(j, who, axis=1)[:, :, None]), axis=2)
    solved = np.linalg.solve(square, right)
    Q = np.einsum("rkk->rk", J) - np.einsum("rik,rik->rk", rows, solved[:, :, :n])
    Qy = j - np.einsum("rik,ri->rk", rows, solved[:, :, n])
    Q = np.maximum(Q, np.finfo(np.float64).tiny)
    return Qy / Q, 1 / Q - doubt

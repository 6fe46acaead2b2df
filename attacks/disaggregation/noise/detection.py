"""Who took part in one sum, given everybody's update: linear detection of all clients together.

With residual A_r − p̄ᵀĜ = δᵀĜ + noise, where δ are the errors of the expected participation p̄, every
client's δ_k is estimated with the others' δ as structured noise of known variance, not as noise like any
other. That the cohort has a known size is one more measurement of δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from attacks.disaggregation.noise.round_model import Products

COHORT_SD = 0.3
"""Error allowed in the size of a cohort: its members are 0 or 1 only in the end."""
SETTLED = 1e-5
"""Variance of a participation below which it no longer disturbs the others."""
BLURRED = 1e4
"""Factor by which doubt about others may blur a client in single precision, which loses 1e-7 times that."""
COLUMNS = 128
"""Columns of a triangle's inverse at a time: LAPACK's own inverse of a triangle is slower."""

SINGLE = blas.sgemm, blas.strsm, blas.strsv, lapack.spotrf
DOUBLE = blas.dgemm, blas.dtrsm, blas.dtrsv, lapack.dpotrf


def detect(
    among: Products,
    weight: NDArray[np.float64],
    signal: NDArray[np.float64],
    doubt: NDArray[np.float64],
    missing: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Unbiased estimates of δ (b, n) for b rounds, and their variances.

    With J (n, n) = `weight` (b,) times `among`, and `signal` j (b, n), the likelihood of δ is
    exp(jᵀδ − δᵀJδ/2). `doubt` V (b, n) are the variances of δ before; client k's own is not used for its
    estimate, which is (Qy)_k / Q_kk with Q = (V + J⁻¹)⁻¹ and y = J⁻¹j, with variance 1/Q_kk − V_kk. `missing`
    (b,) is the cohort's size less the expected one, None if unknown.
    """
    cohort = 0.0 if missing is None else COHORT_SD**-2
    if missing is not None:
        signal = signal + cohort * missing[:, None]
    diagonal = weight[:, None] * among.diagonal() + cohort
    # The size of the cohort is one more pair, beside the two that leave the round out.
    w, ones = weight[:, None], np.ones_like(signal)
    left = np.stack((-w * among.left, -w * among.right, cohort * ones), axis=2)
    right = np.stack((among.right, among.left, ones), axis=2)
    shift, variance = np.empty_like(signal), np.empty_like(signal)
    common: _Common | None = None
    for r, V in enumerate(doubt):
        open_ = V > SETTLED
        if common is None or among.of_all(r) is not common.exact or (open_ != common.open_).any():
            common = _Common.of(among.of_all(r), open_)
        Q, Qy = _marginal(common, _Round(weight[r], left[r], right[r], diagonal[r], signal[r], V))
        shift[r], variance[r] = Qy / Q, 1 / Q - V
    return shift, variance


@dataclass(frozen=True, eq=False)
class _Round:
    """J = weight · (products from all rounds) + left (n, 3) rightᵀ, with its `diagonal`; j and V (n,)."""

    weight: float
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    signal: NDArray[np.float64]
    doubt: NDArray[np.float64]

    def sorted(self, order: NDArray[np.intp]) -> _Round:
        left, right, diagonal = self.left[order], self.right[order], self.diagonal[order]
        return _Round(self.weight, left, right, diagonal, self.signal[order], self.doubt[order])


@dataclass(frozen=True, eq=False)
class _Common:
    """What rounds with the same k clients in doubt, `open_` (n,), have in common.

    `order` (n,): the clients, those in doubt first. `exact` (n, n): products of updates, as clients come.
    `single` (n, k): the same in `order`, of those in doubt with all.
    """

    open_: NDArray[np.bool_]
    order: NDArray[np.intp]
    exact: NDArray[np.float64]
    single: NDArray[np.float32]

    @classmethod
    def of(cls, exact: NDArray[np.float64], open_: NDArray[np.bool_]) -> _Common:
        order = np.argsort(~open_, kind="stable")
        single = exact.astype(np.float32).take(order, axis=0).take(order[: open_.sum()], axis=1)
        return cls(open_, order, exact, single)

    def double(self) -> NDArray[np.float64]:
        """`single` without rounding."""
        return self.exact.take(self.order, axis=0).take(self.order[: self.single.shape[1]], axis=1)


def _marginal(common: _Common, own: _Round) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q_kk (n,) and (Qy)_k (n,) of one round."""
    if not common.open_.any():
        return np.maximum(own.diagonal, np.finfo(np.float64).tiny), own.signal
    given = own.sorted(common.order)
    blurred, *seen = _seen(common.single, given)
    if not blurred <= BLURRED:
        blurred, *seen = _seen(common.double(), given)
    if np.isnan(blurred):
        raise np.linalg.LinAlgError("the products of updates are no inner products")
    Q, Qy = np.empty_like(own.signal), np.empty_like(own.signal)
    Q[common.order], Qy[common.order] = seen
    # Rounding must not leave less than nothing, nor more than one would see if all others were known.
    least = np.finfo(np.float64).eps * own.diagonal + np.finfo(np.float64).tiny
    return np.clip(Q, least, np.maximum(own.diagonal, least)), Qy


def _seen(products: NDArray[Any], own: _Round) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """How much a client is blurred at most (NaN if J is not positive), Q_kk and (Qy)_k; those in doubt first.

    With B = V^½ J of the clients in doubt only, and I + B V^½ = L Lᵀ, Q is J − Bᵀ(L Lᵀ)⁻¹B and Qy is
    j − Bᵀ(L Lᵀ)⁻¹V^½j. Among those in doubt they are also V^-½ (I − (L Lᵀ)⁻¹) V^-½, whose diagonal takes a
    third of the work, and V^-½ (L Lᵀ)⁻¹ V^½j.
    """
    dtype, k = products.dtype, products.shape[1]
    V, j, diagonal = own.doubt, own.signal, own.diagonal
    gemm, trsm, trsv, potrf = SINGLE if dtype == np.float32 else DOUBLE
    sd = np.sqrt(V[:k])
    rows = np.concatenate((sd, np.ones(len(V) - k)))[:, None]
    matrix = products * (own.weight * sd).astype(dtype)
    matrix *= rows.astype(dtype)
    # The transpose is in the order of LAPACK, as are its first k columns and the others: nothing is copied.
    pairs = (own.right[:k] * sd[:, None]).astype(dtype), (own.left * rows).astype(dtype)
    B = gemm(1, *pairs, beta=1, c=matrix.T, trans_b=1, overwrite_c=1)
    square, beside = B[:, :k], B[:, k:]
    # Without this round next to nothing may be left of a rare client: a difference for double precision.
    square_diagonal = 1 + diagonal[:k] * V[:k]
    square[np.diag_indices(k)] = square_diagonal
    L, not_positive = potrf(square, lower=1, overwrite_a=1)
    if not_positive:
        return np.nan, diagonal, j
    signal = trsv(L, (sd * j[:k]).astype(dtype), lower=1)
    sure = trsm(1, L, beside, lower=1, overwrite_b=1) if k < len(V) else beside
    remaining = np.empty(k)
    for first in range(0, k, COLUMNS):
        units = np.eye(k - first, min(COLUMNS, k - first), dtype=dtype, order="F")
        part = trsm(1, L[first:, first:], units, lower=1, overwrite_b=1)
        remaining[first : first + COLUMNS] = np.einsum("ik,ik->k", part, part)
    Q = np.concatenate(((1 - remaining) / V[:k], diagonal[k:] - np.einsum("ik,ik->k", sure, sure)))
    Qy = np.concatenate((trsv(L, signal, lower=1, trans=1) / sd, j[k:] - sure.T @ signal))
    sharp = np.append(1 / (remaining * square_diagonal), _ratio(Q[k:], diagonal[k:])).min()
    return 1 / sharp if sharp > 0 else np.inf, Q, Qy


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where both are 0: a client that never took part."""
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0)

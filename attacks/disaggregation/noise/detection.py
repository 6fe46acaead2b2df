"""Who took part in one round, given all updates: linear multiuser detection.

The residual of a round is A_r − p̄ᵀĜ = δᵀĜ + noise, where δ are the errors of the expected participation p̄.
Each client's δ_k is estimated jointly with the others: their δ is structured interference of known variance,
not white noise. A known cohort size is one more measurement of δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from attacks.disaggregation.noise.leave_one_out import Products

COHORT_SD = 0.3
"""Standard deviation of a cohort size as a measurement: expected participations are not 0 or 1 yet."""
KNOWN_VARIANCE = 1e-5
"""Variance of a participation below which it counts as known and no longer interferes with the others."""
SINGLE_AMPLIFICATION = 1e4
"""Largest amplification of a variance tolerated in float32; above it the round is solved in float64."""
INVERSE_COLUMNS = 128
"""Columns of a triangular inverse computed at a time: LAPACK's own triangular inverse is slower."""

SINGLE = blas.sgemm, blas.strsm, blas.strsv, lapack.spotrf
DOUBLE = blas.dgemm, blas.dtrsm, blas.dtrsv, lapack.dpotrf


def detect(
    among: Products,
    weight: NDArray[np.float64],
    signal: NDArray[np.float64],
    prior: NDArray[np.float64],
    missing: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Unbiased estimates of δ (b, n) for b rounds, and their variances.

    With J (n, n) = `weight` (b,) times `among`, and `signal` j (b, n), the likelihood of δ is
    exp(jᵀδ − δᵀJδ/2). `prior` V (b, n) are the prior variances of δ. Client k's own is not used for its
    estimate, which is (Qy)_k / Q_kk with Q = (V + J⁻¹)⁻¹ and y = J⁻¹j, with variance 1/Q_kk − V_kk. `missing`
    (b,) is the cohort size less the expected one, None if unknown.
    """
    cohort = 0.0 if missing is None else COHORT_SD**-2
    if missing is not None:
        signal = signal + cohort * missing[:, None]
    diagonal = weight[:, None] * among.diagonal() + cohort
    # The cohort size is one more rank-one term, beside the two that leave the round out.
    w, ones = weight[:, None], np.ones_like(signal)
    left = np.stack((-w * among.left, -w * among.right, cohort * ones), axis=2)
    right = np.stack((among.right, among.left, ones), axis=2)
    shift, variance = np.empty_like(signal), np.empty_like(signal)
    common: _Common | None = None
    for r, V in enumerate(prior):
        unknown = V > KNOWN_VARIANCE
        if common is None or among.including(r) is not common.exact or (unknown != common.unknown).any():
            common = _Common.of(among.including(r), unknown)
        Q, Qy = _marginal(common, _Round(weight[r], left[r], right[r], diagonal[r], signal[r], V))
        shift[r], variance[r] = Qy / Q, 1 / Q - V
    return shift, variance


@dataclass(frozen=True, eq=False)
class _Round:
    """J = weight · (products from all rounds) + left (n, 3) rightᵀ, its `diagonal`, and j and V (n,)."""

    weight: float
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    signal: NDArray[np.float64]
    prior: NDArray[np.float64]

    def sorted(self, order: NDArray[np.intp]) -> _Round:
        left, right, diagonal = self.left[order], self.right[order], self.diagonal[order]
        return _Round(self.weight, left, right, diagonal, self.signal[order], self.prior[order])

    def positive(self, products: NDArray[np.float64]) -> _Round:
        """The round with the nearest positive semidefinite J, all of it in `left` and `right`.

        J itself is one, but for rounding: where clients always take part together, leaving the round out
        cancels nearly all of some products.
        """
        J = self.weight * products + self.left @ self.right.T
        values, vectors = np.linalg.eigh((J + J.T) / 2)
        scaled = vectors * np.maximum(values, 0)
        return _Round(0.0, scaled, vectors, np.einsum("ki,ki->k", scaled, vectors), self.signal, self.prior)


@dataclass(frozen=True, eq=False)
class _Common:
    """The matrices that all rounds with the same k `unknown` (n,) clients share.

    `order` (n,): the clients, unknown ones first. `exact` (n, n): products of updates in the clients' own
    order. `single` (n, k): the same in `order`, of all clients with the unknown ones.
    """

    unknown: NDArray[np.bool_]
    order: NDArray[np.intp]
    exact: NDArray[np.float64]
    single: NDArray[np.float32]

    @classmethod
    def of(cls, exact: NDArray[np.float64], unknown: NDArray[np.bool_]) -> _Common:
        order = np.argsort(~unknown, kind="stable")
        single = exact.astype(np.float32).take(order, axis=0).take(order[: unknown.sum()], axis=1)
        return cls(unknown, order, exact, single)

    def double(self) -> NDArray[np.float64]:
        """`single` in double precision."""
        return self.exact.take(self.order, axis=0).take(self.order[: self.single.shape[1]], axis=1)


def _marginal(common: _Common, own: _Round) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q_kk (n,) and (Qy)_k (n,) of one round."""
    if not common.unknown.any():
        return np.maximum(own.diagonal, np.finfo(np.float64).tiny), own.signal
    given = own.sorted(common.order)
    amplification, *solution = _solve(common.single, given)
    if not amplification <= SINGLE_AMPLIFICATION:
        amplification, *solution = _solve(common.double(), given)
    if np.isnan(amplification):
        own = own.positive(common.exact)
        _, *solution = _solve(common.double(), own.sorted(common.order))
    Q, Qy = np.empty_like(own.signal), np.empty_like(own.signal)
    Q[common.order], Qy[common.order] = solution
    # Despite rounding, a precision is positive and at most what it would be if all others were known.
    least = np.finfo(np.float64).eps * own.diagonal + np.finfo(np.float64).tiny
    return np.clip(Q, least, np.maximum(own.diagonal, least)), Qy


def _solve(products: NDArray[Any], own: _Round) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """The largest amplification of a variance (NaN if J is not positive), Q_kk and (Qy)_k; unknown first.

    With B = V^½ J of the unknown clients only, and I + B V^½ = L Lᵀ, Q is J − Bᵀ(L Lᵀ)⁻¹B and Qy is
    j − Bᵀ(L Lᵀ)⁻¹V^½j. Among the unknown clients Q is also V^-½ (I − (L Lᵀ)⁻¹) V^-½, whose diagonal takes a
    third of the work, and Qy is V^-½ (L Lᵀ)⁻¹ V^½j.
    """
    dtype, k = products.dtype, products.shape[1]
    V, j, diagonal = own.prior, own.signal, own.diagonal
    gemm, trsm, trsv, potrf = SINGLE if dtype == np.float32 else DOUBLE
    sd = np.sqrt(V[:k])
    rows = np.concatenate((sd, np.ones(len(V) - k)))[:, None]
    matrix = products * (own.weight * sd).astype(dtype)
    matrix *= rows.astype(dtype)
    # The transpose has the memory order of LAPACK, and so have its first k columns and the rest: no copies.
    pairs = (own.right[:k] * sd[:, None]).astype(dtype), (own.left * rows).astype(dtype)
    B = gemm(1, *pairs, beta=1, c=matrix.T, trans_b=1, overwrite_c=1)
    square, beside = B[:, :k], B[:, k:]
    # Without this round, next to nothing may be left of a rare client: the difference needs double precision.
    square_diagonal = 1 + diagonal[:k] * V[:k]
    square[np.diag_indices(k)] = square_diagonal
    L, not_positive = potrf(square, lower=1, overwrite_a=1)
    if not_positive:
        return np.nan, diagonal, j
    signal = trsv(L, (sd * j[:k]).astype(dtype), lower=1)
    known = trsm(1, L, beside, lower=1, overwrite_b=1) if k < len(V) else beside
    remaining = np.empty(k)
    for first in range(0, k, INVERSE_COLUMNS):
        units = np.eye(k - first, min(INVERSE_COLUMNS, k - first), dtype=dtype, order="F")
        part = trsm(1, L[first:, first:], units, lower=1, overwrite_b=1)
        remaining[first : first + INVERSE_COLUMNS] = np.einsum("ik,ik->k", part, part)
    Q = np.concatenate(((1 - remaining) / V[:k], diagonal[k:] - np.einsum("ik,ik->k", known, known)))
    Qy = np.concatenate((trsv(L, signal, lower=1, trans=1) / sd, j[k:] - known.T @ signal))
    smallest = np.append(1 / (remaining * square_diagonal), _ratio(Q[k:], diagonal[k:])).min()
    return 1 / smallest if smallest > 0 else np.inf, Q, Qy


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole; 1 where both are 0, for a client that never took part."""
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0)

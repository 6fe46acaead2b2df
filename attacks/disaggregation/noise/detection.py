"""Who took part in one round, given all updates: linear multiuser detection.

The residual of a round is A_r − p̄ᵀĜ = δᵀĜ + noise, where δ are the errors of the expected participation p̄.
Each client's δ_k is estimated jointly with the others: their δ is structured interference of known variance,
not white noise. A known cohort size is one more measurement of δ.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
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
MOST_TOGETHER = 16
"""Most rounds prepared together: more would not fit into the cache."""

SINGLE = blas.strsm, lapack.spotrf
DOUBLE = blas.dtrsm, lapack.dpotrf


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
    given = _Rounds(weight, left, right, diagonal, signal, prior)
    unknown = prior > KNOWN_VARIANCE
    Q, Qy = np.empty_like(signal), np.empty_like(signal)
    top = 0
    while top < len(prior):
        # Rounds of one window have the same unknown clients, and share their preparation.
        alike = (unknown[top : top + MOST_TOGETHER] == unknown[top]).all(axis=1)
        rounds = slice(top, top + (len(alike) if alike.all() else int(alike.argmin())))
        Q[rounds], Qy[rounds] = _marginals(among.including(rounds), unknown[top], given.of(rounds))
        top = rounds.stop
    return Qy / Q, 1 / Q - prior


@dataclass(frozen=True, eq=False)
class _Rounds:
    """J = `weight` (b,) · (products from all rounds) + `left` (b, n, 3) `right`ᵀ of b rounds.

    `diagonal` (b, n) is that of J; `signal` j and `prior` V are (b, n).
    """

    weight: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    signal: NDArray[np.float64]
    prior: NDArray[np.float64]

    def of(self, rounds: slice) -> _Rounds:
        return _Rounds(*(getattr(self, field.name)[rounds] for field in fields(self)))

    def sorted(self, order: NDArray[np.intp]) -> _Rounds:
        by_client = (self.left, self.right, self.diagonal, self.signal, self.prior)
        return _Rounds(self.weight, *(array.take(order, axis=1) for array in by_client))

    def positive(self, products: NDArray[np.float64]) -> _Rounds:
        """The rounds with the nearest positive semidefinite J, all of it in `left` and `right`.

        J itself is one, but for rounding: where clients always take part together, leaving the round out
        cancels nearly all of some products.
        """
        J = self.weight[:, None, None] * products + self.left @ self.right.swapaxes(1, 2)
        values, vectors = np.linalg.eigh((J + J.swapaxes(1, 2)) / 2)
        scaled = vectors * np.maximum(values, 0)[:, None, :]
        diagonal = np.einsum("bki,bki->bk", scaled, vectors)
        nothing = np.zeros_like(self.weight)
        return _Rounds(nothing, scaled, vectors, diagonal, self.signal, self.prior)


def _marginals(
    products: NDArray[np.float64], unknown: NDArray[np.bool_], own: _Rounds
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q_kk (b, n) and (Qy)_k (b, n) of b rounds with the same k `unknown` (n,) clients.

    `products` (b, n, n), or (n, n) for all of them, are those from all rounds.
    """
    if not unknown.any():
        return np.maximum(own.diagonal, np.finfo(np.float64).tiny), own.signal
    order = np.argsort(~unknown, kind="stable")
    first = order[: unknown.sum()]
    single = products.astype(np.float32).take(order, axis=-2).take(first, axis=-1)
    amplification, Q, Qy = _solve(single, own.sorted(order))
    diagonal = own.diagonal.copy()
    for r in np.flatnonzero(~(amplification <= SINGLE_AMPLIFICATION)):
        alone, exact = own.of(slice(r, r + 1)), products if products.ndim == 2 else products[r]
        double = exact.take(order, axis=0).take(first, axis=1)
        [still], Q[r : r + 1], Qy[r : r + 1] = _solve(double, alone.sorted(order))
        if np.isnan(still):
            alone = alone.positive(exact)
            diagonal[r] = alone.diagonal
            _, Q[r : r + 1], Qy[r : r + 1] = _solve(double, alone.sorted(order))
    back = np.argsort(order)
    # Despite rounding, a precision is positive and at most what it would be if all others were known.
    least = np.finfo(np.float64).eps * diagonal + np.finfo(np.float64).tiny
    return np.clip(Q[:, back], least, np.maximum(diagonal, least)), Qy[:, back]


def _solve(
    products: NDArray[Any], own: _Rounds
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The largest amplification of a variance (b,), Q_kk and (Qy)_k (b, n each); unknown clients come first.

    With B = V^½ J of the unknown clients only, and I + B V^½ = L Lᵀ, Q is J − Bᵀ(L Lᵀ)⁻¹B and Qy is
    j − Bᵀ(L Lᵀ)⁻¹V^½j. Among the unknown clients Q is also V^-½ (I − (L Lᵀ)⁻¹) V^-½, whose diagonal takes a
    third of the work, and Qy is V^-½ (L Lᵀ)⁻¹ V^½j. The amplification is NaN if J is not positive.
    """
    dtype, k = products.dtype, products.shape[-1]
    V, j, diagonal = own.prior, own.signal, own.diagonal
    b, n = V.shape
    trsm, potrf = SINGLE if dtype == np.float32 else DOUBLE
    sd = np.sqrt(V[:, :k])
    rows = np.concatenate((sd, np.ones((b, n - k))), axis=1)
    matrix = np.empty((b, n + 1, k), dtype)
    np.multiply(products, (own.weight[:, None] * sd).astype(dtype)[:, None], out=matrix[:, :n])
    matrix[:, :n] *= rows[..., None].astype(dtype)
    pairs = (own.left * rows[..., None]).astype(dtype), (own.right[:, :k] * sd[..., None]).astype(dtype)
    matrix[:, :n] += pairs[0] @ pairs[1].swapaxes(1, 2)
    matrix[:, n] = sd * j[:, :k]
    # Without this round, next to nothing may be left of a rare client: the difference needs double precision.
    square_diagonal = 1 + diagonal[:, :k] * V[:, :k]
    matrix[:, np.arange(k), np.arange(k)] = square_diagonal
    units = np.eye(k, min(k, INVERSE_COLUMNS), dtype=dtype, order="F")
    remaining, Qy, explained = np.empty((b, k)), j.copy(), np.empty((b, n - k))
    indefinite = np.zeros(b, dtype=np.bool_)
    for r in range(b):
        # The transpose has the memory order of LAPACK, and so have its first k columns and the rest.
        B = matrix[r].T
        L, not_positive = potrf(B[:, :k], lower=1, overwrite_a=1)
        if not_positive:
            indefinite[r], remaining[r], explained[r] = True, 1.0, 0.0
            continue
        beside = trsm(1, L, B[:, k:], lower=1, overwrite_b=1)
        signal, known = beside[:, -1], beside[:, :-1]
        explained[r] = np.einsum("ik,ik->k", known, known)
        Qy[r, k:] -= signal @ known
        for first in range(0, k, INVERSE_COLUMNS):
            part = trsm(1, L[first:, first:], units[: k - first, : k - first], lower=1)
            stop = min(first + INVERSE_COLUMNS, k)
            remaining[r, first:stop] = np.einsum("ik,ik->k", part, part)
            Qy[r, first:stop] = signal[first:] @ part
    Qy[:, :k] /= sd
    Q = np.concatenate(((1 - remaining) / V[:, :k], diagonal[:, k:] - explained), axis=1)
    ratio = np.concatenate((1 / (remaining * square_diagonal), _ratio(Q[:, k:], diagonal[:, k:])), axis=1)
    smallest = ratio.min(axis=1)
    amplification = np.where(smallest > 0, 1 / np.where(smallest > 0, smallest, 1), np.inf)
    return np.where(indefinite, np.nan, amplification), Q, Qy


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole; 1 where both are 0, for a client that never took part."""
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0)

"""The column space intersected with the counts: an affine space that contains a client's column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.space.subspace import Subspace

WINDOW_TOLERANCE = 1e-6
"""Relative size below which a window's sum over the space is a combination of other windows' sums."""


@dataclass(frozen=True, eq=False)
class AffineSpace:
    """Client k's column lies in offset_k + col B.

    With complete exact counts over common windows (`cut`), B (rounds, b) spans {v in col U : C v = 0} and
    offset_k is the point of {p in col U : C p = c_k} with the least norm. Otherwise B = U and the offsets are
    zero: only the projection on binary columns uses the counts. B and the offsets are in single precision.
    """

    windows: Windows
    subspace: Subspace

    @property
    def cut(self) -> bool:
        """Whether the counts are part of the space."""
        return self.windows.shared and self.windows.complete

    @cached_property
    def B(self) -> NDArray[np.float32]:  # noqa: N802
        """(rounds, b) orthonormal basis of the directions that the counts leave free."""
        U = self.subspace.single
        if not self.cut:
            return U
        Q, rank, *_ = self._factors
        return U @ Q[:, rank:].astype(np.float32)

    def offsets(self, clients: NDArray[np.intp]) -> NDArray[np.float32]:
        """(n, rounds) the offsets of some clients."""
        if not self.cut:
            return np.zeros((len(clients), self.windows.rounds), dtype=np.float32)
        return self._offset_coordinates[clients] @ self.subspace.single.T

    @cached_property
    def _offset_coordinates(self) -> NDArray[np.float32]:
        """(K, r) the offsets in the basis U, which take less memory than clients × rounds."""
        from scipy.linalg import solve_triangular

        Q, rank, R, order = self._factors
        z = solve_triangular(R, self.windows.count[:, order].T, trans="T", check_finite=False)
        return np.asarray(z.T @ Q[:, :rank].T, dtype=np.float32)

    def orthogonal_part(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """(K, rounds) v orthogonal to col U such that w − v is constant on windows, for w orthogonal to B.

        w lies in col U^⊥ + span Cᵀ. Its part in span Cᵀ is determined by its projection on col U.
        """
        U, v = self.subspace.basis, w
        if self.cut:
            from scipy.linalg import solve_triangular

            Q, rank, R, order = self._factors
            level = np.zeros((len(w), self.windows.count.shape[1]))
            level[:, order] = solve_triangular(R, ((w @ U) @ Q[:, :rank]).T, check_finite=False).T
            v = w - self.windows.spread(level, fill=0.0)
        for _ in range(2):  # the second pass removes the rounding of the first
            v = v - (v @ U) @ U.T
        return v

    @cached_property
    def _factors(self) -> tuple[NDArray[np.float64], int, NDArray[np.float64], NDArray[np.intp]]:
        """(C U)ᵀ = Q R with R of full rank on the windows `order`: Q (r, r), rank, R (rank, rank), order."""
        from scipy.linalg.lapack import dpstrf

        U = self.subspace.basis
        padded = np.concatenate((U, np.zeros((1, U.shape[1]))))
        CU = padded[self.windows.index[0]].sum(axis=1)
        inner = CU @ CU.T
        _, pivot, rank, _ = dpstrf(
            inner, tol=WINDOW_TOLERANCE**2 * max(inner.diagonal().max(), 1e-300), lower=1
        )
        order = (pivot - 1)[:rank].astype(np.intp)
        Q, R = _complete_qr(CU[order].T)
        return Q, rank, R, order


def _complete_qr(M: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """M (r, w) = Q[:, :w] R with Q (r, r) orthogonal.

    LAPACK multiplies its reflectors in small blocks. The product of all of them is I − V T Vᵀ, where T⁻¹ is
    the upper triangle of VᵀV with 1/τ on the diagonal. One large product is many times faster.
    """
    from scipy.linalg import solve_triangular
    from scipy.linalg.lapack import dgeqrf

    rows, columns = M.shape
    packed, tau, _, _ = dgeqrf(M, lwork=64 * columns)
    R = np.triu(packed[:columns])
    V = np.tril(packed, -1)
    V[np.arange(columns), np.arange(columns)] = 1
    V, tau = V[:, tau != 0], tau[tau != 0]
    inverse_T = np.triu(V.T @ V, 1) + np.diag(1 / tau)
    Q = np.eye(rows) - V @ solve_triangular(inverse_T, V.T, check_finite=False)
    return Q, R

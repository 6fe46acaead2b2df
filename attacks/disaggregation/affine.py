"""The column space cut by the counts: where a client's column lies before anyone asks it to be binary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.subspace import Subspace
from attacks.disaggregation.windows import Windows

DEPENDENT = 1e-9
"""Relative size below which a window's sum over the space depends on the other windows' sums."""


@dataclass(frozen=True, eq=False)
class AffineSpace:
    """Client k's column lies in offset_k + col B.

    With complete exact counts over common windows (`cut`), B (rounds, b) spans {v in col U : C v = 0} and
    offset_k is the point of {p in col U : C p = c_k} with least norm. Otherwise B = U and the offsets are
    zero: the counts then act through the binary columns alone. B and the offsets are in single precision.
    """

    windows: Windows
    subspace: Subspace

    @property
    def cut(self) -> bool:
        """Whether the counts are part of the space."""
        return self.windows.shared and self.windows.complete

    @cached_property
    def B(self) -> NDArray[np.float32]:  # noqa: N802
        """(rounds, b) orthonormal basis of the directions that are left."""
        U = self.subspace.basis
        if not self.cut:
            return U.astype(np.float32)
        Q, rank, *_ = self._factors
        return np.asarray(U @ Q[:, rank:], dtype=np.float32)

    @cached_property
    def offset(self) -> NDArray[np.float32]:
        """(K, rounds), or (1, rounds) zeros."""
        if not self.cut:
            return np.zeros((1, self.windows.rounds), dtype=np.float32)
        from scipy.linalg import solve_triangular

        Q, rank, R, order = self._factors
        z = solve_triangular(R, self.windows.count[:, order].T, trans="T", check_finite=False)
        return np.asarray((z.T @ Q[:, :rank].T) @ self.subspace.basis.T, dtype=np.float32)

    def offsets(self, clients: NDArray[np.intp]) -> NDArray[np.float32]:
        """The offsets of some clients."""
        return self.offset[clients] if self.cut else self.offset

    def distance(self, Q: NDArray[np.float32], clients: NDArray[np.intp]) -> NDArray[np.float64]:
        """(K,) squared distance of rows of Q from their clients' spaces, in single precision."""
        rest = Q - self.offsets(clients)
        inside = rest @ self.B
        squares = (np.einsum("kr,kr->k", part, part, dtype=np.float64) for part in (rest, inside))
        return np.asarray(np.subtract(*squares))

    def orthogonal_part(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """(K, rounds) v orthogonal to col U such that w − v is constant on windows, for w orthogonal to B.

        w lies in col U^⊥ + span Cᵀ; what the latter contributes is found from its trace in col U.
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
        from scipy.linalg import qr

        U = self.subspace.basis
        padded = np.concatenate((U, np.zeros((1, U.shape[1]))))
        CU = padded[self.windows.index[0]].sum(axis=1)
        Q, R, order = qr(CU.T, pivoting=True, check_finite=False)
        size = np.abs(np.diag(R))
        rank = int((size > DEPENDENT * size[0]).sum()) if len(size) and size[0] > 0 else 0
        return np.asarray(Q), rank, np.asarray(R[:rank, :rank]), np.asarray(order[:rank], dtype=np.intp)

"""Soft measurements: what is nearly known about a column besides that it is binary and in the space.

Clients take part independently, so the overlap of a wanted column with an accepted one is nearly given by
the counts: p_k · p_j ≈ E[p_k] · p_j. Counts that are noisy, or known in part, are such measurements too:
over each window, or over all rounds. The latter also keep the search away from the column of zeros, which
is binary, lies in every space, and fits noisy counts tolerably.

A measurement h · p ≈ t with weight l turns the projection z → O + B Bᵀ z into the minimiser of
½‖p − z‖² + ½ Σ l (h·p − t)² over p in O + col B, which is again one matrix for all clients:
O + B M Bᵀ z + Σ l B M Bᵀ h (t − h·O) with M = (I + Σ l Bᵀh hᵀB)⁻¹.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.affine import AffineSpace

COUNT_WEIGHT = 0.1
"""Weight of a noisy count, relative to one over its variance."""


class Peeling:
    """Projections on the clients' spaces of p = O_k + B z, tilted by soft measurements.

    `expected` (K, rounds) is every client's expected participation. A point z, a row, is projected to
    offsets(client) + (z B) project; `project` (b, rounds) is M Bᵀ.
    """

    def __init__(self, space: AffineSpace, expected: NDArray[np.float32]) -> None:
        self.space, self.expected = space, expected
        self.rate = float(np.clip(expected.mean(), 0.01, 0.99))
        self.Bt = np.ascontiguousarray(space.B.T)
        self.counted, self.counts = self._counts()
        self.project = self.Bt
        self.tilt(np.zeros((0, space.windows.rounds), dtype=np.uint8), 0.0)

    def tilt(self, accepted: NDArray[np.uint8], weight: float) -> None:
        """Measure against the `accepted` (n, rounds) columns from now on."""
        variance = self.space.windows.rounds * (self.rate * (1 - self.rate)) ** 2
        P = np.float32(np.sqrt(weight / variance)) * accepted.astype(np.float32)
        self._accepted, self._all = P, np.concatenate((P, self.counted))
        self._inside = T = self._all @ self.space.B
        if len(T):
            M = np.linalg.inv(np.eye(T.shape[1], dtype=np.float32) + T.T @ T)
            self.project = np.asarray(M @ self.Bt, dtype=np.float32)

    def offsets(self, clients: NDArray[np.intp]) -> NDArray[np.float32]:
        """(K, rounds) where the projections of some clients start from."""
        offset = self.space.offsets(clients)
        target = np.concatenate((self.expected[clients] @ self._accepted.T, self.counts[clients]), axis=1)
        shift = ((target - offset @ self._all.T) @ self._inside) @ self.project
        return np.asarray(offset + shift, dtype=np.float32)

    def _counts(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, rounds) and (K, n) scaled measurements that the counts provide where the space has none."""
        windows, K = self.space.windows, len(self.expected)
        rounds = windows.rounds
        if self.space.cut:
            return np.zeros((0, rounds), np.float32), np.zeros((K, 0), np.float32)
        if windows.shared and not windows.exact and not np.isnan(windows.count).any():
            scale = np.float32(np.sqrt(COUNT_WEIGHT) / windows.sd.mean())
            incidence = np.zeros((windows.count.shape[1], rounds + 1), dtype=np.float32)
            np.put_along_axis(incidence, windows.index[0], 1, axis=1)
            return scale * incidence[:, :rounds], (scale * windows.count).astype(np.float32)
        scale = np.float32(np.sqrt(COUNT_WEIGHT / (rounds * self.rate * (1 - self.rate))))
        return np.full((1, rounds), scale), scale * self.expected.sum(axis=1, keepdims=True)

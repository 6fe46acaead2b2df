"""Peeling: accepted columns and uncertain counts as soft linear measurements of the columns still missing.

Clients take part independently, so the counts nearly determine the overlap of a missing column with an
accepted one: p_k · p_j ≈ E[p_k] · p_j. Noisy or incomplete counts are soft measurements too, over each window
or over all rounds. They also keep the search away from the column of zeros, which is binary, lies in every
space, and fits noisy counts tolerably.

A measurement h · p ≈ t with weight l turns the projection z → O + B Bᵀ z into the minimiser of
½‖p − z‖² + ½ Σ l (h·p − t)² over p in O + col B. Its coordinates in B are again linear in those of z, with
one matrix for all clients: M Bᵀz + Σ l M Bᵀh (t − h·O) with M = (I + Σ l Bᵀh hᵀB)⁻¹.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.reflections.binary import NOISY_COUNT_WEIGHT
from attacks.disaggregation.space.affine import AffineSpace


class Peeling:
    """Projections on the clients' affine spaces p = O_k + B y, tilted by soft measurements.

    `expected` (K, rounds) is every client's expected participation. The projection of a point z has the
    coordinates y = tilted(Bᵀz) + shifts(client).
    """

    def __init__(self, space: AffineSpace, expected: NDArray[np.float32]) -> None:
        self.space, self.expected = space, expected
        self.rate = float(np.clip(expected.mean(), 0.01, 0.99))
        self.counted, self.counts = self._counts()
        self.tilt(np.zeros((0, space.windows.rounds), dtype=np.uint8), 0.0)

    def tilt(self, accepted: NDArray[np.uint8], weight: float) -> None:
        """Use the `accepted` (n, rounds) columns as measurements from now on."""
        variance = self.space.windows.rounds * (self.rate * (1 - self.rate)) ** 2
        P = np.float32(np.sqrt(weight / variance)) * accepted.astype(np.float32)
        self._accepted, self._all = P, np.concatenate((P, self.counted))
        self._inside = T = self._all @ self.space.B
        self._M: NDArray[np.float32] | None = None
        if len(T):
            inverse = np.linalg.inv(np.eye(T.shape[1], dtype=np.float32) + T.T @ T)
            self._M = np.asarray(inverse, dtype=np.float32)

    def tilted(self, coordinates: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, b) coordinates in B of points after the projection, without the `shifts`."""
        return coordinates if self._M is None else np.asarray(coordinates @ self._M)

    def shifts(self, clients: NDArray[np.intp], offsets: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, b) constant part of the projections; `offsets` (n, rounds) are the clients' O."""
        if self._M is None:
            return np.zeros((len(clients), self.space.B.shape[1]), dtype=np.float32)
        target = np.concatenate((self.expected[clients] @ self._accepted.T, self.counts[clients]), axis=1)
        return np.asarray(((target - offsets @ self._all.T) @ self._inside) @ self._M)

    def _counts(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, rounds) directions and (K, n) targets, both scaled, from counts that do not cut the space."""
        windows, K = self.space.windows, len(self.expected)
        rounds = windows.rounds
        if self.space.cut:
            return np.zeros((0, rounds), np.float32), np.zeros((K, 0), np.float32)
        if windows.shared and not windows.exact and not np.isnan(windows.count).any():
            scale = np.float32(np.sqrt(NOISY_COUNT_WEIGHT) / windows.sd.mean())
            incidence = np.zeros((windows.count.shape[1], rounds + 1), dtype=np.float32)
            np.put_along_axis(incidence, windows.index[0], 1, axis=1)
            return scale * incidence[:, :rounds], (scale * windows.count).astype(np.float32)
        scale = np.float32(np.sqrt(NOISY_COUNT_WEIGHT / (rounds * self.rate * (1 - self.rate))))
        return np.full((1, rounds), scale), scale * self.expected.sum(axis=1, keepdims=True)

"""Points that reflect between the clients' spaces and the binary columns, as one batch.

A step updates the coordinates of a point in B together with the point. So it costs two products with B: one
turns binary columns into coordinates, which also gives their distances from the space; the other turns
coordinates back into columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.reflections.binary import BinarySet
from attacks.disaggregation.reflections.peeling import Peeling

START_NOISE = 0.1
"""Size of the uniform noise that makes several starts of one client different."""


@dataclass(eq=False)
class Points:
    """A batch of n points in single precision.

    `clients` (n,) says whose column each point looks for, `X` (n, rounds) are the points, `inside` (n, b)
    their coordinates X B, `offsets` (n, rounds) and `shifts` (n, b) the constant parts of their projections.
    """

    clients: NDArray[np.intp]
    X: NDArray[np.float32]
    inside: NDArray[np.float32]
    offsets: NDArray[np.float32]
    shifts: NDArray[np.float32]
    binary: BinarySet

    @classmethod
    def start(cls, clients: NDArray[np.intp], peeling: Peeling, rng: np.random.Generator) -> Points:
        """Near the point of each client's space that is nearest to its expected participation."""
        space = peeling.space
        offsets = space.offsets(clients)
        shifts = peeling.shifts(clients, offsets)
        X = rng.random((len(clients), space.windows.rounds), dtype=np.float32)
        X *= np.float32(START_NOISE)
        X += offsets
        if not space.cut:  # otherwise the offsets are that point
            coordinates = peeling.tilted(peeling.expected[clients] @ space.B)
            X += (coordinates + shifts) @ space.B.T
        binary = BinarySet(space.windows.of(clients))
        return cls(clients, X, X @ space.B, offsets, shifts, binary)

    def step(
        self, peeling: Peeling, push: NDArray[np.float32] | float, relaxation: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Reflect once; return the binary columns on the way (n, rounds) and their squared distances (n,).

        `push` (rounds,) is added to the points before they are rounded to binary columns.
        """
        B, relaxed = peeling.space.B, np.float32(relaxation)
        Q = self.binary.nearest(self.X + push)
        coordinates = Q @ B
        projected = peeling.tilted(2 * coordinates - self.inside) + self.shifts
        rest = Q - self.offsets
        # The offsets are orthogonal to B: the coordinates of the rest are those of Q.
        outside, within = (
            np.einsum("kr,kr->k", part, part, dtype=np.float64) for part in (rest, coordinates)
        )
        self.X += relaxed * (projected @ B.T - rest)
        self.inside += relaxed * (projected - coordinates)
        return Q, np.asarray(outside - within)

    def renew(self, peeling: Peeling) -> None:
        """Use the current measurements, and remove the rounding errors of the coordinates."""
        self.shifts = peeling.shifts(self.clients, self.offsets)
        self.inside = self.X @ peeling.space.B

    def of(self, chosen: NDArray[np.bool_]) -> Points:
        """Some of the points."""
        return Points(
            self.clients[chosen],
            self.X[chosen],
            self.inside[chosen],
            self.offsets[chosen],
            self.shifts[chosen],
            self.binary.of(np.flatnonzero(chosen)),
        )

    def __len__(self) -> int:
        return len(self.clients)


def joined(batches: Sequence[Points], peeling: Peeling) -> Points:
    """Several batches in one."""
    clients, X, inside, offsets, shifts = (
        np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("clients", "X", "inside", "offsets", "shifts")
    )
    return Points(clients, X, inside, offsets, shifts, BinarySet(peeling.space.windows.of(clients)))

"""The binary columns of a space, with no counts at all: reflections from many random starts.

The relaxed reflections of the `projection` solver need a set that excludes the zero column, which lies in
every space. Counts did that. Here a start only has a range for its *total* number of ones, around the
participation rate; inside the range the threshold is 1/2. Each start wanders until it falls into one of
the columns, whichever it is, so a small batch finds them one by one.

What makes it fast is *peeling*. Clients take part independently, so a column that is still missing has
almost no correlation with one that was found: ⟨p, p_j − mean p_j⟩ ≈ 0. Every find is a soft linear
measurement of all the others, shrinks the space that is left to search, and makes the next find quicker.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsim.progress import Progress, silent

CHECK_EVERY = 10
PEEL_EVERY = 20
PEELING = (1.0, 0.5, 0.25)
"""Weights of the soft measurements, for a hundred iterations each. The correlations vanish only on
average: too high a weight pushes the true columns out of the space."""
ZERO = 1e-2
"""Squared distance, in single precision, below which a binary column is taken to lie in the space."""
WIDTH = 2.0
"""Half the range of a start's number of ones, in standard deviations of a binomial number."""
PATIENCE = 300
"""Iterations after which a start is given up: at the edge of its range it can run in circles."""
ANY_RATE = 0.2
"""Share of the starts that look for columns of quite another rate than the ones known so far."""
BROAD = 3.0
"""Such a rate differs from the known one by at most this factor."""


class ReflectionSearch:
    """Binary columns in the space of an orthonormal `basis` (rounds, rank); points are rows, float32.

    `rates` are guesses of the participation rate. `columns` is what was found so far, each once; every one
    lies in the space, and together they have rank `found`.
    """

    def __init__(
        self,
        basis: NDArray[np.float64],
        rates: NDArray[np.float64],
        *,
        starts: int,
        step: float,
        rng: np.random.Generator,
    ) -> None:
        self.U = basis.astype(np.float32)
        self.rounds, self.rank = basis.shape
        self.project = np.ascontiguousarray(self.U.T)
        self.rates, self.step, self.rng = rates, np.float32(step), rng
        self.columns: dict[bytes, NDArray[np.uint8]] = {}
        self.found = 0
        self.X = np.empty((starts, self.rounds), dtype=np.float32)
        self.range = np.empty((2, starts), dtype=np.intp)
        self.age = np.zeros(starts, dtype=np.intp)
        self._restart(np.ones(starts, dtype=np.bool_))
        self.age = rng.integers(PATIENCE, size=starts)

    def run(self, iterations: int, *, whole: bool = False, progress: Progress = silent) -> NDArray[np.uint8]:
        """(n, rounds) the columns found, in so many iterations or until they span the space.

        They may do so before every column was found; `whole` goes on to the end.
        """
        for iteration in range(1, iterations + 1):
            before = self.found
            self._iterate(iteration)
            if self.found > before:
                progress(self.found, self.rank)
            if self.found == self.rank and not whole:
                break
        return np.array(list(self.columns.values()), dtype=np.uint8).reshape(-1, self.rounds)

    def _iterate(self, iteration: int) -> None:
        """One step of all starts; every now and then, look what they found and use it."""
        Q = self._nearest_binary()
        self.X += self.step * (((2 * Q - self.X) @ self.U) @ self.project - Q)
        self.age += 1
        if iteration % CHECK_EVERY == 0:
            before = len(self.columns)
            self._harvest(Q)
            cycle, phase = divmod(iteration, 100)
            if self.columns and (phase == 0 or (phase % PEEL_EVERY == 0 and len(self.columns) > before)):
                self._peel(PEELING[cycle % len(PEELING)])

    def _nearest_binary(self) -> NDArray[np.float32]:
        """The nearest 0/1 rows whose number of ones is in the start's range."""
        X, (low, high) = self.X, self.range
        threshold = np.full(len(X), 0.5, dtype=np.float32)
        ones = (X >= 0.5).sum(axis=1)
        out = np.flatnonzero((ones < low) | (ones > high))
        place = self.rounds - np.where(ones < low, low, high)[out]
        threshold[out] = np.sort(X[out], axis=1)[np.arange(len(out)), place]
        return np.greater_equal(X, threshold[:, None]).astype(np.float32)

    def _harvest(self, Q: NDArray[np.float32]) -> None:
        inside = Q @ self.U
        distance = Q.sum(axis=1) - np.einsum("kr,kr->k", inside, inside)
        done = distance < ZERO
        for column in Q[done].astype(np.uint8):
            self.columns.setdefault(column.tobytes(), column)
        self._restart(done | (self.age > PATIENCE))

    def _restart(self, rows: NDArray[np.bool_]) -> None:
        rng, n, K = self.rng, self.rounds, int(rows.sum())
        known = [column.mean() for column in self.columns.values()]
        rate = rng.choice(known if known else self.rates, K)
        broad = rng.random(K) < ANY_RATE
        rate = np.where(broad, rate * BROAD ** rng.uniform(-1, 1, K), rate).clip(1 / n, 1 - 1 / n)
        spread = WIDTH * np.sqrt(n * rate * (1 - rate))
        self.range[:, rows] = np.rint([n * rate - spread, n * rate + spread]).clip(1, n - 1)
        noise = rng.standard_normal((K, n), dtype=np.float32)
        self.X[rows] = rate.astype(np.float32)[:, None] + np.float32(0.3) * noise
        self.age[rows] = 0

    def _peel(self, weight: float) -> None:
        """Shrink the space along the columns that were found."""
        P = np.array(list(self.columns.values()), dtype=np.float32)
        self.found = int(np.linalg.matrix_rank(P @ self.U, tol=np.sqrt(ZERO)))
        centred = P - P.mean(axis=1, keepdims=True)
        T = (centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-6)) @ self.U
        M = np.linalg.inv(np.eye(self.rank, dtype=np.float32) + np.float32(weight) * (T.T @ T))
        self.project = np.asarray(M @ self.U.T, dtype=np.float32)

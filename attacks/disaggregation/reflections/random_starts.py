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

from attacks.disaggregation.space.flips import flip_costs, unit_distances
from fedsim.core.progress import Progress, silent

CHECK_EVERY = 10
PEELING = (1.0, 0.5)
"""Weights of the soft measurements, for a hundred iterations each in turn. The correlations vanish only on
average: too high a weight pushes the true columns out of the space."""
LOOK = (0.3, 0.6)
"""A start is looked at more closely, which costs more than the step, when its distance from the space is
below this part of a random one's; without noise and with it. Without, what led to a column was always below
.26."""
STALL = 300
"""Iterations without a find after which the tolerance grows threefold, up to its limit."""
TYPICAL = 5.0
"""The tolerance is never this many times the middle distance of the columns found, once there are some."""
SAME = 0.3
"""Two columns that differ in fewer entries than this part of their ones are the same one, up to noise."""
WIDTH = (1.0, 2.5)
"""Half the range of a start's number of ones, in standard deviations of a binomial number: narrow ranges
suit low rates, wide ones high rates, and each start draws its own."""
PATIENCE = 300
"""Iterations after which a start is given up: at the edge of its range it can run in circles."""
ANY_RATE = 0.1
"""Share of the starts that look for columns of quite another rate than the ones known so far."""
BROAD = 3.0
"""Such a rate differs from the known one by at most this factor."""


class ReflectionSearch:
    """Binary columns near the space of an orthonormal `basis` (rounds, rank); points are rows, float32.

    `rates` are guesses of the participation rate. A column is taken if its squared distance from the space
    is at most `tolerance` (first, limit) per one; without noise a small number will do, with noise the search
    starts with the first and goes up to the limit when it stalls. `columns` (n, rounds) is what was found.
    `found` is its rank, or the number of columns while that is smaller than the space's rank.
    """

    def __init__(
        self,
        basis: NDArray[np.float64],
        rates: NDArray[np.float64],
        *,
        tolerance: tuple[float, float],
        starts: int,
        step: float,
        rng: np.random.Generator,
    ) -> None:
        self.U = basis.astype(np.float32)
        self.rounds, self.rank = basis.shape
        self.project = np.ascontiguousarray(self.U.T)
        self.rates, self.step, self.rng = rates, np.float32(step), rng
        self.tolerance, self.limit = tolerance
        noisy = self.limit > self.tolerance
        self.same = SAME if noisy else 0.0
        self.look = LOOK[noisy]
        self.columns = np.zeros((0, self.rounds), dtype=np.float32)
        self.distance = np.zeros(0, dtype=np.float32)
        self.found, self.last_find, self.iteration = 0, 0, 0
        self.X = np.empty((starts, self.rounds), dtype=np.float32)
        self.range = np.empty((2, starts), dtype=np.intp)
        self.age = np.zeros(starts, dtype=np.intp)
        self._restart(np.ones(starts, dtype=np.bool_))
        self.age = rng.integers(PATIENCE, size=starts)

    def run(self, iterations: int, *, whole: bool = False, progress: Progress = silent) -> NDArray[np.uint8]:
        """(n, rounds) the columns found, in so many iterations or until they span the space.

        They may do so before every column was found; `whole` goes on to the end. A second run goes on where
        the first one ended.
        """
        for _ in range(iterations):
            if self.found == self.rank and not whole:
                break
            before = self.found
            self._iterate()
            if self.found > before:
                progress(self.found, self.rank)
        return self.columns.astype(np.uint8)

    def learn(self, columns: NDArray[np.uint8]) -> None:
        """Take columns (n, rounds) of the space that somebody else found."""
        rows = columns.astype(np.float32)
        for column, distance in zip(rows, self._distance(rows), strict=True):
            self._take(column, distance)
        if len(self.columns):
            self._peel(PEELING[0])

    def _iterate(self) -> None:
        """One step of all starts; every now and then, look what they found and use it."""
        self.iteration = iteration = self.iteration + 1
        Q = self._nearest_binary()
        self.X += self.step * (((2 * Q - self.X) @ self.U) @ self.project - Q)
        self.age += 1
        if iteration % CHECK_EVERY:
            return
        before = len(self.columns)
        self._harvest(Q)
        if len(self.columns) > before:
            self.last_find = iteration
        elif iteration - self.last_find >= STALL:
            self.last_find = iteration
            self._relax()
        cycle, phase = divmod(iteration, 100)
        if len(self.columns) > before or (before and phase == 0):
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
        """Take the columns that starts have reached, and let those start anew."""
        random = 1 - self.rank / self.rounds
        near = np.flatnonzero(self._distance(Q) < self.look * random)
        polished = descend(Q[near], self.U)
        distance = self._distance(polished)
        reached = distance <= self.tolerance
        for column, far in zip(polished[reached], distance[reached], strict=True):
            self._take(column, far)
        self.age[near[reached]] = PATIENCE + 1
        self._restart(self.age > PATIENCE)

    def _take(self, column: NDArray[np.float32], distance: np.float32) -> None:
        """Keep a column, or the nearer of it and the one that it resembles."""
        if len(self.columns):
            differing = np.abs(self.columns - column).sum(axis=1)
            alike = int(differing.argmin())
            if differing[alike] <= self.same * column.sum():
                if distance < self.distance[alike]:
                    self.columns[alike], self.distance[alike] = column, distance
                return
        self.columns = np.concatenate((self.columns, column[None]))
        self.distance = np.append(self.distance, distance)

    def _relax(self) -> None:
        """Be content with less, but not with much less than what was found so far."""
        typical = TYPICAL * float(np.median(self.distance)) if len(self.distance) >= 5 else self.limit
        self.tolerance = max(self.tolerance, min(3 * self.tolerance, typical, self.limit))

    def _distance(self, Q: NDArray[np.float32]) -> NDArray[np.float32]:
        """(K,) squared distance of binary rows from the space, per one."""
        ones, inside = Q.sum(axis=1), Q @ self.U
        return np.asarray(1 - np.einsum("kr,kr->k", inside, inside) / np.maximum(ones, 1))

    def _restart(self, rows: NDArray[np.bool_]) -> None:
        rng, n, K = self.rng, self.rounds, int(rows.sum())
        rate = rng.choice(self.columns.mean(axis=1) if len(self.columns) else self.rates, K).astype(
            np.float64
        )
        broad = rng.random(K) < ANY_RATE
        rate = np.where(broad, rate * BROAD ** rng.uniform(-1, 1, K), rate).clip(1 / n, 1 - 1 / n)
        spread = rng.uniform(*WIDTH, K) * np.sqrt(n * rate * (1 - rate))
        self.range[:, rows] = np.rint([n * rate - spread, n * rate + spread]).clip(1, n - 1)
        noise = rng.standard_normal((K, n), dtype=np.float32)
        self.X[rows] = rate.astype(np.float32)[:, None] + np.float32(0.3) * noise
        self.age[rows] = 0

    def _peel(self, weight: float) -> None:
        """Shrink the space along the columns that were found."""
        P = self.columns
        # Columns of a space are seldom dependent; it matters only when there could be enough of them.
        enough = len(P) >= self.rank
        self.found = int(np.linalg.matrix_rank(P @ self.U, tol=0.1)) if enough else len(P)
        centred = P - P.mean(axis=1, keepdims=True)
        T = (centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-6)) @ self.U
        M = np.linalg.inv(np.eye(self.rank, dtype=np.float32) + np.float32(weight) * (T.T @ T))
        self.project = np.asarray(M @ self.U.T, dtype=np.float32)


def descend(Q: NDArray[np.float32], U: NDArray[np.float32], *, most: int = 40) -> NDArray[np.float32]:
    """Binary rows changed entry by entry, the best one first, as long as they come nearer to col U."""
    Q = Q.copy()
    rows = np.arange(len(Q))
    distances = unit_distances(U)
    for _ in range(most if len(Q) else 0):
        residuals = np.asarray(Q - (Q @ U) @ U.T, dtype=np.float32)
        change = flip_costs(Q, residuals, distances)
        best = change.argmin(axis=1)
        better = change[rows, best] < -1e-4
        if not better.any():
            break
        Q[rows[better], best[better]] = 1 - Q[rows[better], best[better]]
    return Q

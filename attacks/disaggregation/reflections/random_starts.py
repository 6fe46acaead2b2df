"""The binary columns of a space without any counts: reflections from many random starts.

The relaxed reflections of the `projection` solver need a set that excludes the zero column, which lies in
every space. There the counts exclude it. Here each start has a range for its *total* number of ones, around
the participation rate; inside the range the threshold is 1/2. A start wanders until it falls into any of the
columns, so a small batch finds them one by one.

*Peeling* makes the search fast. Clients take part independently, so a missing column has almost no
correlation with a column that was found: ⟨p, p_j − mean p_j⟩ ≈ 0. Every column found is a soft linear
measurement of all missing ones. It shrinks the space that is left to search, and the next column is found
sooner.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.flips import flip_costs, unit_distances
from fedsim.core.progress import Progress, silent

HARVEST_EVERY = 10
PEELING_WEIGHTS = (1.0, 0.5)
"""Weights of the soft measurements, in turn for a hundred iterations each. Correlations vanish only on
average: a weight that is too high pushes the true columns out of the space."""
CLOSER_LOOK = (0.3, 0.6)
"""A start is examined closely if its distance from the space is below this fraction of a random column's;
without noise and with noise. Examining costs more than a step. Without noise, starts that led to a column
were always below .26."""
STALL_ITERATIONS = 300
"""Iterations without a new column after which the tolerance grows threefold, up to its limit."""
TOLERANCE_OVER_MEDIAN = 5.0
"""Largest tolerance relative to the median distance of the columns found, once there are five."""
SAME_COLUMN = 0.3
"""Under noise two columns are the same if they differ in at most this fraction of their ones."""
RANGE_HALF_WIDTH = (1.0, 2.5)
"""Half width of the range of a start's number of ones, in standard deviations of the binomial distribution.
Narrow ranges suit low rates, wide ranges high rates; each start draws its own."""
START_PATIENCE = 300
"""Iterations of one start; at the edge of its range it can run in circles."""
OTHER_RATE_SHARE = 0.1
"""Share of the starts that look for columns with a different rate than the known ones."""
OTHER_RATE_FACTOR = 3.0
"""Largest factor between such a rate and a known one."""


class ReflectionSearch:
    """Binary columns near the space of an orthonormal `basis` (rounds, rank); points are rows, float32.

    `rates` are guesses of the participation rate. A column is accepted if its squared distance from the
    space, divided by its number of ones, is at most the tolerance. `tolerance` is (first, limit): the search
    starts with the first and goes up to the limit when it stalls. `columns` (n, rounds) are the columns
    found. `found` is their rank, or their number while that is smaller than the space's rank.
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
        self.same = SAME_COLUMN if noisy else 0.0
        self.look = CLOSER_LOOK[noisy]
        self.columns = np.zeros((0, self.rounds), dtype=np.float32)
        self.distance = np.zeros(0, dtype=np.float32)
        self.found, self.last_find, self.iteration = 0, 0, 0
        self.X = np.empty((starts, self.rounds), dtype=np.float32)
        self.range = np.empty((2, starts), dtype=np.intp)
        self.age = np.zeros(starts, dtype=np.intp)
        self._restart(np.ones(starts, dtype=np.bool_))
        self.age = rng.integers(START_PATIENCE, size=starts)

    def run(self, iterations: int, *, whole: bool = False, progress: Progress = silent) -> NDArray[np.uint8]:
        """(n, rounds) the columns found within `iterations`, or until they span the space.

        They may span the space before every column was found; with `whole` the search goes on to the end. A
        second run continues the first.
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
        """Add columns (n, rounds) of the space that another method found."""
        rows = columns.astype(np.float32)
        for column, distance in zip(rows, self._distance(rows), strict=True):
            self._take(column, distance)
        if len(self.columns):
            self._peel(PEELING_WEIGHTS[0])

    def _iterate(self) -> None:
        """One step of all starts; every few steps collect the columns that they reached."""
        self.iteration = iteration = self.iteration + 1
        Q = self._nearest_binary()
        self.X += self.step * (((2 * Q - self.X) @ self.U) @ self.project - Q)
        self.age += 1
        if iteration % HARVEST_EVERY:
            return
        before = len(self.columns)
        self._harvest(Q)
        if len(self.columns) > before:
            self.last_find = iteration
        elif iteration - self.last_find >= STALL_ITERATIONS:
            self.last_find = iteration
            self._relax()
        cycle, phase = divmod(iteration, 100)
        if len(self.columns) > before or (before and phase == 0):
            self._peel(PEELING_WEIGHTS[cycle % len(PEELING_WEIGHTS)])

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
        """Accept the columns that starts have reached, and restart these."""
        random = 1 - self.rank / self.rounds
        near = np.flatnonzero(self._distance(Q) < self.look * random)
        polished = descend(Q[near], self.U)
        distance = self._distance(polished)
        reached = distance <= self.tolerance
        for column, far in zip(polished[reached], distance[reached], strict=True):
            self._take(column, far)
        self.age[near[reached]] = START_PATIENCE + 1
        self._restart(self.age > START_PATIENCE)

    def _take(self, column: NDArray[np.float32], distance: np.float32) -> None:
        """Keep a column; of two that are the same up to noise, the nearer one."""
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
        """Raise the tolerance, but not far above the distances of the columns found."""
        typical = (
            TOLERANCE_OVER_MEDIAN * float(np.median(self.distance)) if len(self.distance) >= 5 else self.limit
        )
        self.tolerance = max(self.tolerance, min(3 * self.tolerance, typical, self.limit))

    def _distance(self, Q: NDArray[np.float32]) -> NDArray[np.float32]:
        """(K,) squared distance of binary rows from the space, divided by their number of ones."""
        ones, inside = Q.sum(axis=1), Q @ self.U
        return np.asarray(1 - np.einsum("kr,kr->k", inside, inside) / np.maximum(ones, 1))

    def _restart(self, rows: NDArray[np.bool_]) -> None:
        rng, n, K = self.rng, self.rounds, int(rows.sum())
        rate = rng.choice(self.columns.mean(axis=1) if len(self.columns) else self.rates, K).astype(
            np.float64
        )
        broad = rng.random(K) < OTHER_RATE_SHARE
        rate = np.where(broad, rate * OTHER_RATE_FACTOR ** rng.uniform(-1, 1, K), rate).clip(1 / n, 1 - 1 / n)
        spread = rng.uniform(*RANGE_HALF_WIDTH, K) * np.sqrt(n * rate * (1 - rate))
        self.range[:, rows] = np.rint([n * rate - spread, n * rate + spread]).clip(1, n - 1)
        noise = rng.standard_normal((K, n), dtype=np.float32)
        self.X[rows] = rate.astype(np.float32)[:, None] + np.float32(0.3) * noise
        self.age[rows] = 0

    def _peel(self, weight: float) -> None:
        """Shrink the space along the columns that were found."""
        P = self.columns
        # Columns are seldom dependent; the rank matters only when there could be enough of them.
        enough = len(P) >= self.rank
        self.found = int(np.linalg.matrix_rank(P @ self.U, tol=0.1)) if enough else len(P)
        centred = P - P.mean(axis=1, keepdims=True)
        T = (centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-6)) @ self.U
        M = np.linalg.inv(np.eye(self.rank, dtype=np.float32) + np.float32(weight) * (T.T @ T))
        self.project = np.asarray(M @ self.U.T, dtype=np.float32)


def descend(Q: NDArray[np.float32], U: NDArray[np.float32], *, most: int = 40) -> NDArray[np.float32]:
    """Greedy descent: flip the best entry of each row as long as the row comes nearer to col U."""
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

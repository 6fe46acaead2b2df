"""Which column belongs to which client, when the counts are noisy or incomplete and several columns fit.

The columns of different clients differ, so all are assigned together: as many clients as possible get a
column that fits their counts, at the least total misfit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.columns.parts import independent, shortest_first, taken_apart
from attacks.disaggregation.counts.count_errors import log_likelihood
from attacks.disaggregation.counts.intervals import Row
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.space.subspace import Subspace

FORBIDDEN_COST = 1e9
"""Cost of a column that contradicts an exact count, or whose misfit the counts' errors cannot explain."""
MISFIT_SIGMAS = 5.0
"""Standard deviations by which a client's total misfit may exceed its expectation."""
RATIO_BOUND = 200.0
"""Bound of a log-likelihood ratio; a product of three ratios then stays finite."""
SPAN_DISTANCE = 1e-3
"""Distance from the span of other columns below which a column found by a search counts as dependent."""
COINCIDENCE = 0.1
"""Expected number of columns that contain another by chance, below which a longer one counts as a sum."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """`column` (K,) is the index of client k's column among those given, −1 if none fits.

    `cost` (K, n) is the misfit of every client with every column.
    """

    column: NDArray[np.intp]
    cost: NDArray[np.float64]

    @cached_property
    def confidence(self) -> NDArray[np.float64]:
        """(K,) the probability that a client's column is its own, from the likelihood of exchanges.

        Two clients can exchange columns, and three can rotate theirs. There are many more rotations, so they
        matter as much where errors are large. Cycles of four would make the confidence too low when measured:
        exchanges among the other clients, which rule these cycles out, are not accounted for.
        """
        confidence, rows = np.zeros(len(self.column)), np.flatnonzero(self.column >= 0)
        crossed = self.cost[np.ix_(rows, self.column[rows])]
        # Likelihood ratio of one client's counts with another's column: half the change of the misfit.
        ratio = np.exp(np.clip((np.diag(crossed)[:, None] - crossed) / 2, -RATIO_BOUND, RATIO_BOUND))
        np.fill_diagonal(ratio, 0)
        exchanges = ((ratio + ratio @ ratio) * ratio.T).sum(axis=1)
        confidence[rows] = 1 / (1 + exchanges)
        return confidence


def attribute(windows: Windows, columns: NDArray[np.uint8]) -> Attribution:
    """Assign different `columns` (n, rounds) to the clients of `windows`."""
    from scipy.optimize import linear_sum_assignment

    column = np.full(windows.clients, -1, dtype=np.intp)
    if not len(columns):
        return Attribution(column, np.zeros((windows.clients, 0)))
    cost = misfit(windows, columns)
    rows, chosen = linear_sum_assignment(np.minimum(cost, FORBIDDEN_COST))
    fits = cost[rows, chosen] < FORBIDDEN_COST
    column[rows[fits]] = chosen[fits]
    return Attribution(column, cost)


class Pool:
    """The different columns found so far: `columns` (n, rounds), and `column` (K,) each client's index.

    With complete exact counts a column belongs to the client that was searched for. Otherwise
    (`attributed`) it may have turned up in the search for another client, or be the sum of two columns that
    never meet: the pool then keeps the shortest independent columns and attributes them.
    """

    def __init__(self, windows: Windows, subspace: Subspace, *, attributed: bool) -> None:
        self.windows, self.subspace, self.attributed = windows, subspace, attributed
        self.columns = np.zeros((0, windows.rounds), dtype=np.uint8)
        self.column = np.full(windows.clients, -1, dtype=np.intp)
        self._index: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Number of different columns in the pool."""
        return len(self.columns)

    def add(self, clients: NDArray[np.intp], columns: NDArray[np.generic]) -> bool:
        """Add the columns found for some clients; return whether any of them is new."""
        binary = columns.astype(np.uint8)
        new = []
        for i, key in enumerate(map(bytes, np.packbits(binary, axis=1))):
            if key not in self._index:
                self._index[key] = len(self._index)
                new.append(i)
            if not self.attributed:
                self.column[clients[i]] = self._index[key]
        if new:
            self.columns = np.concatenate((self.columns, binary[new]))
            if self.attributed:
                self.columns = single_columns(self.columns, self.subspace)
                self.column = attribute(self.windows, self.columns).column
        return bool(new)

    def without(self, clients: NDArray[np.intp]) -> NDArray[np.intp]:
        """The clients among `clients` that have no column yet."""
        return clients[self.column[clients] < 0]


def single_columns(columns: NDArray[np.uint8], subspace: Subspace) -> NDArray[np.uint8]:
    """Linearly independent columns of the space, from `columns` (n, rounds) with sums taken apart."""
    columns = np.unique(taken_apart(columns, coincidence=COINCIDENCE), axis=0)
    coordinates = columns @ subspace.basis
    if len(columns) <= subspace.rank:
        R = np.linalg.qr(coordinates.T, mode="r")
        if np.abs(np.diag(R)).min() > SPAN_DISTANCE:
            return columns
    return columns[independent(coordinates, shortest_first(columns), tolerance=SPAN_DISTANCE)]


def misfit(windows: Windows, columns: NDArray[np.uint8]) -> NDArray[np.float64]:
    """(K, n) minus twice the log-likelihood of client k's counts, up to a constant, if it had column j.

    For normal errors these are squares in units of their variance. A contradicted exact count, or an error
    that is too large, costs FORBIDDEN_COST.
    """
    known = ~np.isnan(windows.count)
    exact, laplace = known & (windows.sd == 0), known & windows.laplace
    noisy = known & (windows.sd > 0) & ~laplace
    precision = np.where(noisy, 1 / np.where(noisy, windows.sd, 1) ** 2, 0)
    slope = np.where(laplace, -2 * log_likelihood(np.ones(()), np.where(laplace, windows.sd, 1), laplace), 0)
    count = np.where(known, windows.count, 0)
    if windows.shared:
        sums = windows.sums(columns).astype(np.float64)
        wrong = _squares(exact.astype(np.float64), count, sums)
        error = _squares(precision, count, sums) + _distances(slope, count, sums)
    else:
        wrong, error = np.empty((windows.clients, len(columns))), np.empty((windows.clients, len(columns)))
        for k in range(windows.clients):
            off = windows.of(np.full(len(columns), k)).sums(columns) - count[k]
            wrong[k], error[k] = off**2 @ exact[k], off**2 @ precision[k] + np.abs(off) @ slope[k]
    # Twice a Laplace error in units of its scale has mean 2 and variance 4. A squared normal error has mean 1
    # and variance 2; 5 allows for heavier tails.
    mean = (noisy.sum(axis=1) + 2 * laplace.sum(axis=1))[:, None]
    variance = (5 * noisy.sum(axis=1) + 4 * laplace.sum(axis=1))[:, None]
    for k, rows in windows.readings.items():
        error[k], mean[k] = _squares_of_readings(rows, columns)
        variance[k] = 5 * mean[k]
    too_large = error > mean + MISFIT_SIGMAS * np.sqrt(variance) + MISFIT_SIGMAS
    return np.where((wrong > 0.5) | too_large, FORBIDDEN_COST, np.maximum(error, 0))


def _squares_of_readings(rows: Sequence[Row], columns: NDArray[np.uint8]) -> tuple[NDArray[np.float64], int]:
    """(n,) squared errors of one client's nested counts, which err independently; and their number."""
    noisy = [row for row in rows if row.sd > 0]
    start, stop, count, sd = np.array([(row.start, row.stop, row.count, row.sd) for row in noisy]).T
    totals = np.cumsum(np.pad(columns, ((0, 0), (1, 0))), axis=1, dtype=np.int64)
    sums = totals[:, stop.astype(np.intp)] - totals[:, start.astype(np.intp)]
    return (((sums - count) / sd) ** 2).sum(axis=1), len(noisy)


def _distances(
    slope: NDArray[np.float64], count: NDArray[np.float64], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(K, n) Σ_w slope_kw |count_kw − sums_jw|."""
    total = np.zeros((len(count), len(sums)))
    for w in np.flatnonzero(slope.any(axis=0)):
        total += slope[:, w, None] * np.abs(count[:, w, None] - sums[:, w])
    return total


def _squares(
    weight: NDArray[np.float64], count: NDArray[np.float64], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(K, n) Σ_w weight_kw (count_kw − sums_jw)²."""
    return np.asarray(
        weight @ (sums**2).T - 2 * (weight * count) @ sums.T + (weight * count**2).sum(axis=1)[:, None]
    )

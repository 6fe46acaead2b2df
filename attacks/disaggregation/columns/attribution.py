"""Which column is whose, when the counts are noisy or incomplete and several columns fit a client.

The columns of different clients are different, so they are assigned all together: as many clients as
possible get a column that fits their counts, at the least total misfit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.intervals import Row
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.space.subspace import Subspace

FORBIDDEN = 1e9
"""Cost of a column that contradicts an exact count, or that a noisy count makes incredible."""
INCREDIBLE = 5.0
"""Standard deviations by which a client's total misfit may exceed what its counts' errors explain."""

LARGEST = 200.0
"""Bound of a log-likelihood ratio, so that products of three ratios are numbers."""

DEPENDENT = 1e-3
"""Distance from the span of other columns below which a column is a combination of them."""

COINCIDENCE = 0.1
"""Expected number of columns that hold all ones of another by chance, below which that is no chance."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """`column` (K,) the place of client k's column among those given, −1 if none fits.

    `cost` (K, n) is the misfit of every client with every column.
    """

    column: NDArray[np.intp]
    cost: NDArray[np.float64]

    @cached_property
    def confidence(self) -> NDArray[np.float64]:
        """(K,) the probability that a client's column is not another's, from what exchanges would cost.

        Two clients can exchange theirs, and three can pass theirs round: there are so many more ways to do
        that that it is as likely where errors are large. With four, measured confidence would be too low:
        other clients' exchanges, which rule these out, are not accounted for.
        """
        confidence, rows = np.zeros(len(self.column)), np.flatnonzero(self.column >= 0)
        crossed = self.cost[np.ix_(rows, self.column[rows])]
        # How much likelier one client's counts are with another's column: half the change of the misfit.
        odds = np.exp(np.clip((np.diag(crossed)[:, None] - crossed) / 2, -LARGEST, LARGEST))
        np.fill_diagonal(odds, 0)
        exchanges = ((odds + odds @ odds) * odds.T).sum(axis=1)
        confidence[rows] = 1 / (1 + exchanges)
        return confidence


def attribute(windows: Windows, columns: NDArray[np.uint8]) -> Attribution:
    """Assign different `columns` (n, rounds) to the clients of `windows`."""
    from scipy.optimize import linear_sum_assignment

    column = np.full(windows.clients, -1, dtype=np.intp)
    if not len(columns):
        return Attribution(column, np.zeros((windows.clients, 0)))
    cost = misfit(windows, columns)
    rows, chosen = linear_sum_assignment(np.minimum(cost, FORBIDDEN))
    fits = cost[rows, chosen] < FORBIDDEN
    column[rows[fits]] = chosen[fits]
    return Attribution(column, cost)


class Pool:
    """The different columns found so far: `columns` (n, rounds), and `column` (K,) whose is which, or −1.

    With complete exact counts a column belongs to the client that was searched for; otherwise
    (`attributed`) it may have turned up in the search for another, or be the sum of two columns that never
    meet. Sums depend on their parts and are longer: the pool keeps the shortest independent columns.
    """

    def __init__(self, windows: Windows, subspace: Subspace, *, attributed: bool) -> None:
        self.windows, self.subspace, self.attributed = windows, subspace, attributed
        self.columns = np.zeros((0, windows.rounds), dtype=np.uint8)
        self.column = np.full(windows.clients, -1, dtype=np.intp)
        self._place: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Different columns in the pool."""
        return len(self.columns)

    def add(self, clients: NDArray[np.intp], columns: NDArray[np.generic]) -> bool:
        """Take in the columns found for some clients; whether any of them was never seen before."""
        binary = columns.astype(np.uint8)
        new = []
        for i, key in enumerate(map(bytes, np.packbits(binary, axis=1))):
            if key not in self._place:
                self._place[key] = len(self._place)
                new.append(i)
            if not self.attributed:
                self.column[clients[i]] = self._place[key]
        if new:
            self.columns = np.concatenate((self.columns, binary[new]))
            if self.attributed:
                self.columns = independent(without_parts(self.columns), self.subspace)
                self.column = attribute(self.windows, self.columns).column
        return bool(new)

    def without(self, clients: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the clients that have no column yet."""
        return clients[self.column[clients] < 0]


def without_parts(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Different columns, in which none holds all ones of another: the other is taken out of it.

    A column that contains another is a sum with it; for two clients' own columns that would be a rare
    coincidence, unless the shorter is short, or the longer is long.
    """
    columns = np.unique(columns, axis=0)
    for _ in range(len(columns)):
        size = columns.sum(axis=1, dtype=np.int64)
        meet = columns.astype(np.float32) @ columns.T.astype(np.float32)
        by_chance = len(columns) ** 2 * (size[None, :] / columns.shape[1]) ** size[:, None]
        part = (meet == size[:, None]) & (size[:, None] < size[None, :]) & (by_chance < COINCIDENCE)
        if not part.any():
            break
        whole = int(np.flatnonzero(part.any(axis=0))[0])
        columns[whole] -= columns[int(np.flatnonzero(part[:, whole])[0])]
        columns = np.unique(columns, axis=0)
    return columns


def independent(columns: NDArray[np.uint8], subspace: Subspace) -> NDArray[np.uint8]:
    """Linearly independent ones among `columns` (n, rounds) of the space, short before long."""
    coordinates = columns @ subspace.basis
    if len(columns) <= subspace.rank:
        R = np.linalg.qr(coordinates.T, mode="r")
        if np.abs(np.diag(R)).min() > DEPENDENT:
            return columns
    kept: list[int] = []
    Q = np.zeros((subspace.rank, subspace.rank))
    for i in np.argsort(columns.sum(axis=1, dtype=np.int64), kind="stable").tolist():
        basis = Q[: len(kept)]
        rest = coordinates[i] - (basis @ coordinates[i]) @ basis
        rest -= (basis @ rest) @ basis
        length = np.linalg.norm(rest)
        if length > DEPENDENT and len(kept) < subspace.rank:
            Q[len(kept)] = rest / length
            kept.append(i)
    return columns[kept]


def misfit(windows: Windows, columns: NDArray[np.uint8]) -> NDArray[np.float64]:
    """(K, n) sum of squared errors of client k's counts in units of their variance, if column j were his.

    Contradicted exact counts, and errors beyond belief, cost FORBIDDEN.
    """
    known = ~np.isnan(windows.count)
    noisy = known & (windows.sd > 0)
    exact = known & ~noisy
    precision = np.where(noisy, 1 / np.where(noisy, windows.sd, 1) ** 2, 0)
    count = np.where(known, windows.count, 0)
    if windows.shared:
        sums = windows.sums(columns).astype(np.float64)
        wrong = _squares(exact.astype(np.float64), count, sums)
        error = _squares(precision, count, sums)
    else:
        wrong, error = np.empty((windows.clients, len(columns))), np.empty((windows.clients, len(columns)))
        for k in range(windows.clients):
            off = windows.of(np.full(len(columns), k)).sums(columns) - count[k]
            wrong[k], error[k] = off**2 @ exact[k], off**2 @ precision[k]
    counts = noisy.sum(axis=1)[:, None]
    for k, rows in windows.readings.items():
        error[k], counts[k] = _squares_of_readings(rows, columns)
    # Squares of Laplace noise, which private counts have, vary by 5; those of Gaussian noise by 2.
    incredible = error > counts + INCREDIBLE * np.sqrt(5 * counts) + INCREDIBLE
    return np.where((wrong > 0.5) | incredible, FORBIDDEN, np.maximum(error, 0))


def _squares_of_readings(rows: Sequence[Row], columns: NDArray[np.uint8]) -> tuple[NDArray[np.float64], int]:
    """(n,) the same for counts of nested windows, which err independently; and how many of them err."""
    noisy = [row for row in rows if row.sd > 0]
    start, stop, count, sd = np.array([(row.start, row.stop, row.count, row.sd) for row in noisy]).T
    totals = np.cumsum(np.pad(columns, ((0, 0), (1, 0))), axis=1, dtype=np.int64)
    held = totals[:, stop.astype(np.intp)] - totals[:, start.astype(np.intp)]
    return (((held - count) / sd) ** 2).sum(axis=1), len(noisy)


def _squares(
    weight: NDArray[np.float64], count: NDArray[np.float64], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(K, n) Σ_w weight_kw (count_kw − sums_jw)²."""
    return np.asarray(
        weight @ (sums**2).T - 2 * (weight * count) @ sums.T + (weight * count**2).sum(axis=1)[:, None]
    )

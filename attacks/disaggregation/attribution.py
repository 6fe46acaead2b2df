"""Which column is whose, when the counts are noisy or incomplete and several columns fit a client.

The columns of different clients are different, so they are assigned all together: as many clients as
possible get a column that fits their counts, at the least total misfit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.windows import Windows

FORBIDDEN = 1e9
"""Cost of a column that contradicts an exact count, or that a noisy count makes incredible."""
INCREDIBLE = 5.0
"""Standard deviations by which a client's total misfit may exceed what its counts' errors explain."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """`column` (K,) the place of client k's column among those given, −1 if none fits.

    `confidence` (K,) is the probability that it is not another client's instead, from what exchanging two
    clients' columns would cost.
    """

    column: NDArray[np.intp]
    confidence: NDArray[np.float64]


def attribute(windows: Windows, columns: NDArray[np.uint8]) -> Attribution:
    """Assign different `columns` (n, rounds) to the clients of `windows`."""
    from scipy.optimize import linear_sum_assignment

    K = windows.clients
    column, confidence = np.full(K, -1, dtype=np.intp), np.zeros(K)
    if not len(columns):
        return Attribution(column, confidence)
    cost = misfit(windows, columns)
    rows, chosen = linear_sum_assignment(np.minimum(cost, FORBIDDEN))
    fits = cost[rows, chosen] < FORBIDDEN
    rows, chosen = rows[fits], chosen[fits]
    column[rows] = chosen
    # Log-likelihood ratio of exchanging the columns of two clients: half the change of both misfits.
    crossed = cost[np.ix_(rows, chosen)]
    own = np.diag(crossed)
    change = np.minimum(crossed + crossed.T - own[:, None] - own[None, :], FORBIDDEN)
    np.fill_diagonal(change, FORBIDDEN)
    confidence[rows] = 1 / (1 + np.exp(-np.maximum(change, -60) / 2).sum(axis=1))
    return Attribution(column, confidence)


class Pool:
    """The different columns found so far: `columns` (n, rounds), and `column` (K,) whose is which, or −1.

    With complete exact counts a column belongs to the client that was searched for; otherwise
    (`attributed`) it may have turned up in the search for another.
    """

    def __init__(self, windows: Windows, *, attributed: bool) -> None:
        self.windows, self.attributed = windows, attributed
        self.columns = np.zeros((0, windows.rounds), dtype=np.uint8)
        self.column = np.full(windows.clients, -1, dtype=np.intp)

    @property
    def size(self) -> int:
        """Different columns in the pool."""
        return len(self.columns)

    def add(self, clients: NDArray[np.intp], columns: NDArray[np.float32]) -> bool:
        """Take in the columns found for some clients; whether any of them is new."""
        before = self.size
        everything = np.concatenate((self.columns, columns.astype(np.uint8)))
        _, first, place = np.unique(
            np.packbits(everything, axis=1), axis=0, return_index=True, return_inverse=True
        )
        kept = np.sort(first)
        self.columns = everything[kept]
        if not self.attributed:
            self.column[clients] = np.searchsorted(kept, first[place[before:]])
        elif self.size > before:
            self.column = attribute(self.windows, self.columns).column
        return self.size > before

    def without(self, clients: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the clients that have no column yet."""
        return clients[self.column[clients] < 0]


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
    incredible = error > counts + INCREDIBLE * np.sqrt(2 * counts) + INCREDIBLE
    return np.where((wrong > 0.5) | incredible, FORBIDDEN, np.maximum(error, 0))


def _squares(
    weight: NDArray[np.float64], count: NDArray[np.float64], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(K, n) Σ_w weight_kw (count_kw − sums_jw)²."""
    return np.asarray(
        weight @ (sums**2).T - 2 * (weight * count) @ sums.T + (weight * count**2).sum(axis=1)[:, None]
    )

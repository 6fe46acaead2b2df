"""How likely a client's counts are if a column is its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.stats import binom

from attacks.disaggregation.columns.attribution import FORBIDDEN_COST, misfit
from attacks.disaggregation.counts.windows import Windows

IMPOSSIBLE = -FORBIDDEN_COST / 2
"""Log-likelihood of a count that cannot be."""
LEAST_LIKELY = 60.0
"""A cost this far above that of a client's likeliest counts is as good as impossible."""


@dataclass(frozen=True, eq=False)
class CountModel:
    """The counts of K clients, with the share of counted participations that are `lost` and in no sum.

    A lost update makes a count too large, never too small: that says more than an error of either sign.
    """

    windows: Windows
    lost: float = 0.0

    def cost(self, columns: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(K, n) −2 log-likelihood of client k's counts with column j; FORBIDDEN_COST if it cannot be."""
        windows = self.windows
        if not windows.shared or windows.overlapping or windows.readings:
            return misfit(windows, columns.astype(np.uint8))
        K, W, most = self._table.shape
        sums = windows.sums(columns.astype(np.uint8))
        place = (np.arange(W) * most)[None, :] + sums
        ends = np.arange(len(columns) + 1) * W
        picked = csr_matrix((np.ones(place.size), place.ravel(), ends), shape=(len(columns), W * most))
        cost = -2 * np.asarray(picked @ self._table.reshape(K, -1).T).T
        best = -2 * self._table.max(axis=2).sum(axis=1)[:, None]
        return np.where(cost > best + LEAST_LIKELY, FORBIDDEN_COST, cost - best)

    def chance(self, density: NDArray[np.float64], clients: NDArray[np.intp]) -> NDArray[np.float64]:
        """(n,) the mean likelihood of a client's counts over random columns of this `density` (n,).

        Relative to that of the likeliest column, as `cost` is.
        """
        windows = self.windows
        if not windows.shared or windows.overlapping or windows.readings:
            return np.full(len(clients), 1 / max(1, windows.clients))
        table = self._table[clients]
        lengths = windows.lengths[0][None, :, None]
        ones = np.arange(table.shape[2])[None, None, :]
        prior = binom.logpmf(ones, lengths, density[:, None, None])
        relative = np.exp(np.maximum(table - table.max(axis=2, keepdims=True), -LEAST_LIKELY))
        return np.asarray((np.exp(prior) * relative).sum(axis=2).prod(axis=1))

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """(K, W, longest + 1) log-likelihood of a count if the true number of rounds is c."""
        windows = self.windows
        lengths = windows.lengths[0]
        ones = np.arange(int(lengths.max(initial=0)) + 1)[None, None, :]
        count, sd = windows.count[:, :, None], windows.sd[:, :, None]
        known = ~np.isnan(count)
        count = np.where(known, count, 0)
        if self.lost > 0:
            given = np.where(ones <= count, binom.logpmf(ones, np.round(count), 1 - self.lost), -np.inf)
        else:
            exact = np.where(ones == count, 0.0, -np.inf)
            given = np.where(sd > 0, -0.5 * ((ones - count) / np.where(sd > 0, sd, 1)) ** 2, exact)
        table = np.where(known, given, 0.0)
        return np.where(ones <= lengths[None, :, None], np.maximum(table, IMPOSSIBLE), IMPOSSIBLE)

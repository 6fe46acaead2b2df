"""How likely a client's counts are if a column is its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from attacks.disaggregation.columns.attribution import FORBIDDEN_COST, misfit
from attacks.disaggregation.counts.binomial import log_binomial
from attacks.disaggregation.counts.count_errors import count_weights
from attacks.disaggregation.counts.windows import Windows

IMPOSSIBLE = -FORBIDDEN_COST / 2
"""Log-likelihood of a count that cannot be."""
LEAST_LIKELY = 60.0
"""A cost this far above that of a client's likeliest counts is as good as impossible."""
WINDOW_PRIOR = 20.0
"""Participations whose share of losses all windows have in common, against those of the window itself."""
LEAST_LOSS = 1e-4
"""Least share of losses in a window, because the number of losses is an estimate."""


@dataclass(frozen=True, eq=False)
class CountModel:
    """The counts of K clients, with the share of counted participations that are `lost` and in no sum.

    A lost update makes a count too large, never too small: that says more than an error of either sign. The
    `cohort_sizes` (rounds,), if known, tell how many updates were lost in each window, and which rounds are
    void: whatever was counted in these is lost.
    """

    windows: Windows
    lost: float = 0.0
    cohort_sizes: NDArray[np.int64] | None = None

    @property
    def settle(self) -> bool:
        """Whether the counts are complete and exact, so that they tell a column from a union of columns."""
        return self.lost == 0 and self.windows.complete

    @property
    def known(self) -> bool:
        """Whether at least one count is known."""
        return not np.isnan(self.windows.count).all()

    @cached_property
    def most_rounds(self) -> int:
        """Most rounds that a column can have and fit the counts of any client."""
        windows = self.windows
        bounded = self.lost > 0 or windows.exact
        if not bounded or not windows.clients:
            return windows.rounds
        known = np.where(np.isnan(windows.count), windows.lengths, windows.count).sum(axis=1)
        return int((known + windows.rounds - windows.lengths.sum(axis=1)).max())

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
        prior = log_binomial(ones, lengths, density[:, None, None])
        relative = np.exp(np.maximum(table - table.max(axis=2, keepdims=True), -LEAST_LIKELY))
        return np.asarray((np.exp(prior) * relative).sum(axis=2).prod(axis=1))

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """(K, W, longest + 1) log-likelihood of a count if the true number of rounds is c."""
        windows = self.windows
        lengths = windows.lengths[0]
        ones = np.arange(int(lengths.max(initial=0)) + 1)[None, None, :]
        if self.lost > 0:
            known = ~np.isnan(windows.count[:, :, None])
            count = np.rint(np.nan_to_num(windows.count))[:, :, None]
            table = np.where(known, self._with_losses(ones, count), 0.0)
        else:
            table = count_weights(windows, most=ones.size - 1)
        return np.where(ones <= lengths[None, :, None], np.maximum(table, IMPOSSIBLE), IMPOSSIBLE)

    def _with_losses(self, ones: NDArray[np.int64], count: NDArray[np.float64]) -> NDArray[np.float64]:
        """(K, W, longest + 1) log-likelihood of a `count` (K, W, 1): the `ones`, and what was lost besides.

        A client that is not in the sum of a round was there and lost with a chance that follows from the
        rate of participation and the share of losses; in a void round, with the rate itself.
        """
        windows, lengths = self.windows, self.windows.lengths[0]
        sizes = np.ones(windows.rounds) if self.cohort_sizes is None else self.cohort_sizes
        by_window = windows.of(np.arange(1)).inside(sizes[None].astype(np.float64), fill=np.nan)[0]
        void = (by_window == 0).sum(axis=1)
        live = lengths - void
        rate = np.clip(np.nanmean(windows.count, axis=0) / lengths, 1e-6, 1 - 1e-6)
        lost = np.full(len(lengths), self.lost)
        if self.cohort_sizes is not None:
            counted, held = windows.clients * rate * live, np.nansum(by_window, axis=1)
            overall = max(0.0, 1 - held.sum() / counted.sum())
            share = 1 - held / np.maximum(counted, 1)
            lost = (counted * share + WINDOW_PRIOR * overall) / (counted + WINDOW_PRIOR)
        lost = np.clip(lost, LEAST_LOSS, 1 - LEAST_LOSS)
        unseen = rate * lost / (1 - rate * (1 - lost))
        likelihood = np.zeros(np.broadcast_shapes(ones.shape, count.shape))
        for in_void in range(int(void.max(initial=0)) + 1):
            rest = np.maximum(live[:, None] - ones[0], 0)
            missing = count - ones - in_void
            elsewhere = log_binomial(np.maximum(missing, 0), rest[None], unseen[:, None])
            both = elsewhere + log_binomial(in_void, void, rate)[None, :, None]
            likelihood += np.where(missing >= 0, np.exp(both), 0.0)
        with np.errstate(divide="ignore"):
            return np.where(ones <= live[None, :, None], np.log(likelihood), -np.inf)

"""The exact posterior of every window, from its count and noisy evidence about single entries.

A window with count c has c ones among its rounds. The evidence for each round weighs the choices. Sums over
all choices are computed by dynamic programming over the rounds of the window and the number of ones so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.count_errors import count_weights
from attacks.disaggregation.counts.windows import Windows


@dataclass(frozen=True, eq=False)
class WindowPosterior:
    """Posterior of 0/1 columns with the counts of `windows`, given a log-likelihood ratio per entry.

    `rates` (K, rounds) is the prior probability of each entry, within (0, 1). It matters only where the count
    is missing or noisy. Evidence and results are (K, rounds), clients in rows.
    """

    windows: Windows
    rates: NDArray[np.float64]

    def mean(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """The posterior probability that an entry is 1."""
        odds = evidence + self._prior_odds
        inside = np.full((*self.windows.count.shape, self.windows.index.shape[2]), np.nan)
        h = self._inside(odds)
        before, after = _tables(h, self._count_weight)
        total = after[0, 0]
        # Each term is a share of the total, at most 1, so that the sum can leave the logarithms.
        chance = [
            np.exp(before[i, :-1] + after[i + 1, 1:] + (h[i] - total)).sum(axis=0) for i in range(len(h))
        ]
        inside[self._counted] = np.stack(chance, axis=1)
        return self._over_rounds(inside, 1 / (1 + np.exp(-np.clip(odds, -500, 500))))

    def best(self, evidence: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """The most probable column of every client, and (K,) the logarithm of its probability."""
        odds = evidence + self._prior_odds
        h = self._inside(odds)
        total = _total(h, self._count_weight)
        order = np.argsort(-h, axis=0, kind="stable")
        value = np.zeros((len(h) + 1, h.shape[1]))
        np.cumsum(np.take_along_axis(h, order, axis=0), axis=0, out=value[1:])
        value = value[: len(self._count_weight)] + self._count_weight
        ones = value.argmax(axis=0)
        rank = np.argsort(order, axis=0, kind="stable")
        log_chance = np.zeros(self.windows.count.shape)
        log_chance[self._counted] = value.max(axis=0) - total
        inside = np.full((*self.windows.count.shape, len(h)), np.nan)
        inside[self._counted] = (rank < ones).T
        columns = self._over_rounds(inside, (odds > 0).astype(np.float64)).astype(np.uint8)
        free = np.isnan(self._over_rounds(inside, np.full(odds.shape, np.nan)))
        alone = np.where(free, -np.logaddexp(0, -np.abs(odds)), 0.0).sum(axis=1)
        return columns, log_chance.sum(axis=1) + alone

    def support(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """(K,) log-likelihood ratio of the counts: with the evidence against without any.

        The evidence comes from the aggregates. If it is about another client's column, it does not predict
        the counts of this client, and a column that is forced to have them is probably wrong.
        """
        support = np.zeros(self.windows.count.shape)
        support[self._counted] = self._log_chance_of_counts(evidence + self._level_odds) - self._log_chance
        return np.asarray(support.sum(axis=1))

    def _log_chance_of_counts(self, odds: NDArray[np.float64]) -> NDArray[np.float64]:
        h = self._inside(odds)
        return np.asarray(_total(h, self._count_weight) - np.logaddexp(0, h).sum(axis=0))

    @cached_property
    def _level_odds(self) -> NDArray[np.float64]:
        """(K, rounds) prior log odds of a client whose rate is the same in all rounds."""
        rate = np.clip(self.rates.mean(axis=1, keepdims=True), 1e-3, 1 - 1e-3)
        return np.broadcast_to(np.log(rate) - np.log1p(-rate), self.rates.shape)

    @cached_property
    def _log_chance(self) -> NDArray[np.float64]:
        """(n,) log-likelihood of the counts without any evidence."""
        return self._log_chance_of_counts(self._level_odds)

    @cached_property
    def _prior_odds(self) -> NDArray[np.float64]:
        return np.asarray(np.log(self.rates) - np.log1p(-self.rates))

    @cached_property
    def _counted(self) -> NDArray[np.bool_]:
        """(K, W) the windows with a count; all entries outside them are independent."""
        return np.asarray(~np.isnan(self.windows.count))

    @cached_property
    def _count_weight(self) -> NDArray[np.float64]:
        """(s, n) log-likelihood of s ones in each counted window, up to a constant."""
        exact, longest = self.windows.exact, self.windows.index.shape[2]
        most = int(self.windows.count[self._counted].max(initial=0)) if exact else longest
        return np.ascontiguousarray(count_weights(self.windows, most=most)[self._counted].T)

    def _inside(self, odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """(g, n) log odds by position in the counted windows; −∞ beyond the end of a short window."""
        return np.ascontiguousarray(self.windows.inside(odds, fill=-np.inf)[self._counted].T)

    def _over_rounds(self, inside: NDArray[np.float64], alone: NDArray[np.float64]) -> NDArray[np.float64]:
        """(K, rounds) the values `inside` windows (K, W, g), and those `alone` (K, rounds) elsewhere."""
        clients, rounds = alone.shape
        values = np.full((clients, rounds + 1), np.nan)
        index = np.broadcast_to(self.windows.index, inside.shape).reshape(clients, -1)
        np.put_along_axis(values, index, inside.reshape(clients, -1), axis=1)
        return np.where(np.isnan(values[:, :rounds]), alone, values[:, :rounds])


def _tables(
    h: NDArray[np.float64], count_weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(g+1, s, n) log sums over the positions before i with s ones, and from i on given s ones before."""
    positions, n = h.shape
    before = np.full((positions + 1, len(count_weight), n), -np.inf)
    after = np.empty_like(before)
    before[0, 0] = 0
    after[positions] = count_weight
    for i in range(positions):
        before[i + 1] = before[i]
        before[i + 1, 1:] = np.logaddexp(before[i, 1:], before[i, :-1] + h[i])
    for i in reversed(range(positions)):
        after[i] = after[i + 1]
        after[i, :-1] = np.logaddexp(after[i + 1, :-1], after[i + 1, 1:] + h[i])
    return before, after


def _total(h: NDArray[np.float64], count_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) log sums over all positions: the first entry of the second table, without the others."""
    after = count_weight.copy()
    for odds in h[::-1]:
        after[:-1] = np.logaddexp(after[:-1], after[1:] + odds)
    return np.asarray(after[0])

"""Counts over disjoint windows, in arrays for batched solvers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.counts.disjoint_table import DisjointTable, disjoint_table, in_order
from attacks.disaggregation.counts.intervals import Row

_Float = TypeVar("_Float", np.float32, np.float64)
_Any = TypeVar("_Any", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Windows:
    """Disjoint windows of K clients over the same rounds.

    `index` (L, W, g) holds the rounds of each window, padded with the number of rounds; L is 1 if all
    clients share the layout, else K. `count` (K, W) is NaN where nothing is known; `sd` (K, W) is the
    standard deviation of its error, 0 for exact counts, and `laplace` (K, W) marks Laplace errors among
    normal ones. `overlapping` lists, per client, additional
    constraints: windows that could not be made disjoint (empty for nearly all clients). `readings` lists, per
    client, the original counts of a noisy cumulative counter. The disjoint counts are differences of
    readings, so the error of a reading is in two of them, with opposite signs.
    """

    rounds: int
    index: NDArray[np.intp]
    count: NDArray[np.float64]
    sd: NDArray[np.float64]
    laplace: NDArray[np.bool_]
    overlapping: dict[int, tuple[Row, ...]]
    readings: dict[int, tuple[Row, ...]] = field(default_factory=dict)

    @classmethod
    def none(cls, *, rounds: int, clients: int) -> Windows:
        """No counts for any client."""
        empty = np.zeros((clients, 0))
        return cls(rounds, np.zeros((1, 0, 1), dtype=np.intp), empty, empty, empty > 0, {})

    @classmethod
    def from_report(cls, report: ParticipationReport, rounds: int) -> Windows:
        """The report as disjoint windows. Raises WindowsError if the report contradicts itself."""
        return _from_table(rounds, len(report.clients), disjoint_table(report, rounds))

    @property
    def clients(self) -> int:
        """K, the number of clients."""
        return len(self.count)

    @property
    def shared(self) -> bool:
        """Whether all clients have the same windows (counts may be missing here and there)."""
        return len(self.index) == 1

    @property
    def exact(self) -> bool:
        """Whether every known count is exact."""
        return not (self.sd[~np.isnan(self.count)] > 0).any()

    @property
    def complete(self) -> bool:
        """Whether every round of every client lies in a window with an exact count."""
        return (
            self.exact and not np.isnan(self.count).any() and bool((self.lengths.sum(1) == self.rounds).all())
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(L, W) number of rounds in each window."""
        return np.asarray((self.index < self.rounds).sum(axis=2))

    def of(self, clients: NDArray[np.intp]) -> Windows:
        """The windows of some of the clients."""
        return replace(
            self,
            index=self.index if self.shared else self.index[clients],
            count=self.count[clients],
            sd=self.sd[clients],
            laplace=self.laplace[clients],
            overlapping=_renumbered(self.overlapping, clients),
            readings=_renumbered(self.readings, clients),
        )

    def spread(self, values: NDArray[_Float], fill: float = np.nan) -> NDArray[_Float]:
        """(K, rounds) the value of each round's window, from `values` (K, W); `fill` outside all windows."""
        outside = np.full((len(values), 1), fill, dtype=values.dtype)
        padded = np.concatenate((values, outside), axis=1)
        if self.shared:
            return np.asarray(np.take(padded, self.window_of_round[0], axis=1))
        return np.take_along_axis(padded, self.window_of_round, axis=1)

    def inside(self, values: NDArray[_Any], fill: float = 0) -> NDArray[_Any]:
        """(K, W, g) `values` (K, rounds) gathered by window; `fill` where a window is shorter than g."""
        outside = np.full((len(values), 1), fill, dtype=values.dtype)
        padded = np.concatenate((values, outside), axis=1)
        if self.shared:
            return np.asarray(np.take(padded, self.index[0], axis=1))
        _, W, longest = self.index.shape
        flat = np.take_along_axis(padded, self.index.reshape(len(values), W * longest), axis=1)
        return flat.reshape(len(values), W, longest)

    @cached_property
    def window_of_round(self) -> NDArray[np.intp]:
        """(L, rounds) the index of each round's window, W if there is none."""
        layouts, W, longest = self.index.shape
        window = np.full((layouts, self.rounds + 1), W, dtype=np.intp)
        np.put_along_axis(
            window, self.index.reshape(layouts, W * longest), np.arange(W).repeat(longest)[None, :], axis=1
        )
        return window[:, : self.rounds]

    def rates(self) -> NDArray[np.float64]:
        """(K, rounds) the participation rates that the counts suggest; NaN where nothing is known.

        Noisy counts are shrunk towards the overall rate, in proportion to the share of error in their
        variance.
        """
        lengths = np.broadcast_to(self.lengths, self.count.shape)
        known = ~np.isnan(self.count)
        if not known.any():
            return self.spread(self.count)
        mean = float(np.clip(self.count[known].sum() / lengths[known].sum(), 0, 1))
        variance = lengths * mean * (1 - mean) + np.finfo(np.float64).tiny
        shrinkage = np.where(self.sd > 0, variance / (variance + self.sd**2), 1.0)
        rates = mean + shrinkage * (self.count / np.maximum(lengths, 1) - mean)
        return self.spread(np.clip(rates, 0, 1))

    def expected(self) -> NDArray[np.float64]:
        """(K, rounds) the participation rates by the counts; the mean rate where nothing is known."""
        rates = self.rates()
        known = ~np.isnan(rates)
        return np.where(known, rates, rates[known].mean() if known.any() else 0.5)

    def known(self) -> NDArray[np.float32]:
        """(K, rounds) the entries that exact counts determine, 0 or 1; NaN elsewhere."""
        lengths = np.broadcast_to(self.lengths, self.count.shape)
        fixed = np.full(self.count.shape, np.nan, dtype=np.float32)
        fixed[(self.sd == 0) & (self.count == 0)] = 0
        fixed[(self.sd == 0) & (self.count == lengths)] = 1
        return self.spread(fixed)

    def sums(self, columns: NDArray[np.uint8]) -> NDArray[np.int64]:
        """(K, W) the counts of client k if it had row k of `columns` (K, rounds)."""
        return np.asarray(self.inside(columns).sum(axis=2, dtype=np.int64))

    def meet(self, columns: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """(K,) whether row k of `columns` (K, rounds) has all exact counts of client k."""
        off = (self.sums(columns) != self.count) & (self.sd == 0) & ~np.isnan(self.count)
        met = ~off.any(axis=1)
        for client, rows in self.overlapping.items():
            met[client] &= all(
                row.sd > 0 or columns[client, row.start : row.stop].sum(dtype=np.int64) == row.count
                for row in rows
            )
        return np.asarray(met)

    def constraints(self, client: int) -> list[Row]:
        """Every known count of one client, including overlapping ones."""
        index = self.index[0 if self.shared else client]
        lengths = (index < self.rounds).sum(axis=1)
        return [
            Row(
                int(index[w, 0]),
                int(index[w, 0] + lengths[w]),
                float(self.count[client, w]),
                float(self.sd[client, w]),
            )
            for w in np.flatnonzero(~np.isnan(self.count[client]) & (lengths > 0))
        ] + list(self.overlapping.get(client, ()))


def _renumbered(
    by_client: dict[int, tuple[Row, ...]], clients: NDArray[np.intp]
) -> dict[int, tuple[Row, ...]]:
    """The entries of some clients, under their positions in `clients`."""
    return {i: by_client[int(c)] for i, c in enumerate(clients) if int(c) in by_client}


def _from_table(rounds: int, clients: int, disjoint: DisjointTable) -> Windows:
    """A table as arrays, with one layout for all clients if their windows are compatible."""
    table = disjoint.rows
    client, start, stop = table[:, :3].astype(np.int64).T
    order = in_order(client, start, stop, rounds)
    table, client, start, stop = table[order], client[order], start[order], stop[order]
    laplace = disjoint.laplace[order]
    spans, which = np.unique(start * (rounds + 1) + stop, return_inverse=True)
    starts, stops = spans // (rounds + 1), spans % (rounds + 1)
    if (starts[1:] >= stops[:-1]).all():
        position = which
        width = len(spans)
        index = _padded(starts, stops, rounds)[None]
    else:
        first = np.searchsorted(client, client)
        position = np.arange(len(client)) - first
        width = int(position.max()) + 1
        index = np.full((clients, width, int((stop - start).max())), rounds, dtype=np.intp)
        index[client, position] = _padded(start, stop, rounds)
    counts, sds = np.full((clients, width), np.nan), np.zeros((clients, width))
    laws = np.zeros((clients, width), dtype=np.bool_)
    counts[client, position], sds[client, position] = table[:, 3], table[:, 4]
    laws[client, position] = laplace
    return Windows(rounds, index, counts, sds, laws, disjoint.overlapping, disjoint.readings)


def _padded(starts: NDArray[np.int64], stops: NDArray[np.int64], rounds: int) -> NDArray[np.intp]:
    """(W, g) the rounds of each window, padded with `rounds`."""
    longest = int((stops - starts).max()) if len(starts) else 1
    index = starts[:, None] + np.arange(longest)
    return np.where(index < stops[:, None], index, rounds).astype(np.intp)

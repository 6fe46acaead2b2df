"""Counts as disjoint windows, in arrays that a batched solver can index."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.counts.intervals import Row, disjoint_rows

_Float = TypeVar("_Float", np.float32, np.float64)
_Any = TypeVar("_Any", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Windows:
    """Disjoint windows of K clients over the same rounds.

    `index` (L, W, g) holds the rounds of each window, padded with the number of rounds; L is 1 when all
    clients share the layout, else K. `count` (K, W) is NaN where nothing is known; `sd` (K, W) is its
    error's standard deviation, 0 for exact counts. `overlapping` lists, per client, windows that could
    not be made disjoint (empty for nearly everyone): constraints that hold besides the others. `readings`
    lists, per client, the counts that disjoint ones are differences of, if these have errors: a reading's
    error is in two differences, with opposite signs.
    """

    rounds: int
    index: NDArray[np.intp]
    count: NDArray[np.float64]
    sd: NDArray[np.float64]
    overlapping: dict[int, tuple[Row, ...]]
    readings: dict[int, tuple[Row, ...]] = field(default_factory=dict)

    @classmethod
    def none(cls, *, rounds: int, clients: int) -> Windows:
        """Nothing is known about anyone."""
        empty = np.zeros((clients, 0))
        return cls(rounds, np.zeros((1, 0, 1), dtype=np.intp), empty, empty, {})

    @classmethod
    def from_report(cls, report: ParticipationReport, rounds: int) -> Windows:
        """Disjoint windows that say what the report says; WindowsError if it contradicts itself."""
        return _arranged(rounds, len(report.clients), disjoint_table(report, rounds))

    @property
    def clients(self) -> int:
        """K."""
        return len(self.count)

    @property
    def shared(self) -> bool:
        """Whether all clients have the same windows (counts may be missing here and there)."""
        return len(self.index) == 1

    @property
    def exact(self) -> bool:
        """Whether every known count is free of noise."""
        return not (self.sd[~np.isnan(self.count)] > 0).any()

    @property
    def complete(self) -> bool:
        """Whether every round of every client lies in a window with an exact count."""
        return (
            self.exact and not np.isnan(self.count).any() and bool((self.lengths.sum(1) == self.rounds).all())
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(L, W) rounds in each window."""
        return np.asarray((self.index < self.rounds).sum(axis=2))

    def of(self, clients: NDArray[np.intp]) -> Windows:
        """The same for some of the clients."""
        return replace(
            self,
            index=self.index if self.shared else self.index[clients],
            count=self.count[clients],
            sd=self.sd[clients],
            overlapping=_of(self.overlapping, clients),
            readings=_of(self.readings, clients),
        )

    def spread(self, values: NDArray[_Float], fill: float = np.nan) -> NDArray[_Float]:
        """(K, W) values laid out over the rounds: (K, rounds), `fill` where no window lies."""
        outside = np.full((len(values), 1), fill, dtype=values.dtype)
        padded = np.concatenate((values, outside), axis=1)
        if self.shared:
            return np.asarray(np.take(padded, self._window_of_round[0], axis=1))
        return np.take_along_axis(padded, self._window_of_round, axis=1)

    def inside(self, values: NDArray[_Any], fill: float = 0) -> NDArray[_Any]:
        """(K, rounds) values gathered by window: (K, W, g), `fill` where a window is shorter than g."""
        outside = np.full((len(values), 1), fill, dtype=values.dtype)
        padded = np.concatenate((values, outside), axis=1)
        if self.shared:
            return np.asarray(np.take(padded, self.index[0], axis=1))
        _, W, longest = self.index.shape
        flat = np.take_along_axis(padded, self.index.reshape(len(values), W * longest), axis=1)
        return flat.reshape(len(values), W, longest)

    @cached_property
    def _window_of_round(self) -> NDArray[np.intp]:
        """(L, rounds) the window that a round lies in, W if none."""
        layouts, W, longest = self.index.shape
        window = np.full((layouts, self.rounds + 1), W, dtype=np.intp)
        np.put_along_axis(
            window, self.index.reshape(layouts, W * longest), np.arange(W).repeat(longest)[None, :], axis=1
        )
        return window[:, : self.rounds]

    def rates(self) -> NDArray[np.float64]:
        """(K, rounds) the chance of taking part that the counts suggest; NaN where nothing is known.

        Noisy counts are drawn towards the overall rate by as much as their error explains of their spread.
        """
        lengths = np.broadcast_to(self.lengths, self.count.shape)
        known = ~np.isnan(self.count)
        if not known.any():
            return self.spread(self.count)
        mean = float(np.clip(self.count[known].sum() / lengths[known].sum(), 0, 1))
        spread = lengths * mean * (1 - mean) + np.finfo(np.float64).tiny
        trust = np.where(self.sd > 0, spread / (spread + self.sd**2), 1.0)
        rates = mean + trust * (self.count / np.maximum(lengths, 1) - mean)
        return self.spread(np.clip(rates, 0, 1))

    def expected(self) -> NDArray[np.float64]:
        """(K, rounds) the chance of taking part by the counts; the overall rate where they are silent."""
        rates = self.rates()
        known = ~np.isnan(rates)
        return np.where(known, rates, rates[known].mean() if known.any() else 0.5)

    def known(self) -> NDArray[np.float32]:
        """(K, rounds) entries that the exact counts fix: 0 or 1; NaN elsewhere."""
        lengths = np.broadcast_to(self.lengths, self.count.shape)
        fixed = np.full(self.count.shape, np.nan, dtype=np.float32)
        fixed[(self.sd == 0) & (self.count == 0)] = 0
        fixed[(self.sd == 0) & (self.count == lengths)] = 1
        return self.spread(fixed)

    def sums(self, columns: NDArray[np.uint8]) -> NDArray[np.int64]:
        """(K, W) what the counts would be if client k had column k; `columns` is (K, rounds)."""
        return np.asarray(self.inside(columns).sum(axis=2, dtype=np.int64))

    def meet(self, columns: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """(K,) whether column k (a row of `columns`) has client k's exact counts, overlapping ones too."""
        off = (self.sums(columns) != self.count) & (self.sd == 0) & ~np.isnan(self.count)
        met = ~off.any(axis=1)
        for client, rows in self.overlapping.items():
            met[client] &= all(
                row.sd > 0 or columns[client, row.start : row.stop].sum(dtype=np.int64) == row.count
                for row in rows
            )
        return np.asarray(met)

    def constraints(self, client: int) -> list[Row]:
        """Every known count of one client, overlapping ones too."""
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


def _of(by_client: dict[int, tuple[Row, ...]], clients: NDArray[np.intp]) -> dict[int, tuple[Row, ...]]:
    return {i: by_client[int(c)] for i, c in enumerate(clients) if int(c) in by_client}


class DisjointTable(NamedTuple):
    """Counts over disjoint windows: `rows` (n, 5) are a client's place, start, stop, count and sd.

    `overlapping` and `readings` as in `Windows`.
    """

    rows: NDArray[np.float64]
    overlapping: dict[int, tuple[Row, ...]]
    readings: dict[int, tuple[Row, ...]]


def disjoint_table(report: ParticipationReport, rounds: int) -> DisjointTable:
    """The known counts of a report; WindowsError if exact ones contradict each other."""
    known = ~np.isnan(report.count)
    order = _in_order(report.client[known], report.start[known], report.stop[known], rounds)
    columns = (report.client, report.start, report.stop, report.count, report.sd)
    table = np.stack([column[known][order] for column in columns], axis=1)
    client, start, stop = table[:, 0], table[:, 1], table[:, 2]
    clash = (client[1:] == client[:-1]) & (start[1:] < stop[:-1])
    overlapping: dict[int, tuple[Row, ...]] = {}
    readings: dict[int, tuple[Row, ...]] = {}
    tables = [table[~np.isin(client, client[1:][clash])] if clash.any() else table]
    for index in np.unique(client[1:][clash]).astype(int).tolist():
        rows = [Row(int(a), int(b), c, s) for _, a, b, c, s in table[client == index].tolist()]
        disjoint, rest = disjoint_rows(rows, str(report.clients[index]))
        if rest:
            overlapping[index] = tuple(rest)
        if any(row.sd > 0 for row in rows):
            readings[index] = tuple(rows)
        tables.append(np.array([(index, row.start, row.stop, row.count, row.sd) for row in disjoint]))
    return DisjointTable(np.concatenate(tables), overlapping, readings)


def _in_order(
    client: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64], rounds: int
) -> NDArray[np.intp] | slice:
    """Rows by client, then by time; tables of millions of rows mostly are in order already."""
    key = (client * (rounds + 1) + start) * (rounds + 1) + stop
    return slice(None) if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")


def _arranged(rounds: int, clients: int, disjoint: DisjointTable) -> Windows:
    """Disjoint rows as arrays: one layout for all clients if their windows are compatible."""
    table = disjoint.rows
    client, start, stop = table[:, :3].astype(np.int64).T
    order = _in_order(client, start, stop, rounds)
    table, client, start, stop = table[order], client[order], start[order], stop[order]
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
    counts[client, position], sds[client, position] = table[:, 3], table[:, 4]
    return Windows(rounds, index, counts, sds, disjoint.overlapping, disjoint.readings)


def _padded(starts: NDArray[np.int64], stops: NDArray[np.int64], rounds: int) -> NDArray[np.intp]:
    """(W, g) the rounds of each window, padded with `rounds`."""
    longest = int((stops - starts).max()) if len(starts) else 1
    index = starts[:, None] + np.arange(longest)
    return np.where(index < stops[:, None], index, rounds).astype(np.intp)

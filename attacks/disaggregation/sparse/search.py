"""Columns of single clients from the patterns: rows of their own, and what their rows have in common.

A pattern that nobody else's columns explain holds somebody unknown. The rounds that are left over are this
client's, and so is whatever all rows that hold these rounds have in common. That is the client's column, as
soon as two of its rows have no other author in common. Each column explains parts of further patterns, so
the search goes in waves.

A union of two columns is held by the rows that both clients move, which are few. So columns that many rows
hold come first. If the counts are complete and exact, they tell a union from a column at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, triu

from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.holders import MOST_OF_THEM, Holders
from attacks.disaggregation.sparse.naming import fitting
from attacks.disaggregation.sparse.unions import cover, union_of_parts
from fedsim.core.progress import Progress, silent

LEAST_ROWS = 2
"""Fewest rows that hold a column, if the counts cannot tell it from a union."""
MOST_EXTRA = 0.1
"""Most rounds that such a column may be expected to have too many."""
TOO_MUCH = 0.1
"""Expected number of candidates, per client, that are a client's column and more."""
MOST_DOUBT = 10.0
"""Odds against a candidate from which it is dropped."""
LEAST_REST = 2
"""Fewest rounds of a rest whose holders are asked for."""


@dataclass(eq=False)
class Search:
    """The columns found so far, and which rounds of every pattern they explain."""

    holders: Holders
    counts: CountModel
    columns: NDArray[np.bool_] = field(init=False)
    rows: NDArray[np.int64] = field(init=False)
    extra: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = np.zeros((0, self.holders.rounds), dtype=np.bool_)
        self.rows, self.extra = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._explained = np.zeros_like(self.holders.patterns)
        self._most = min(self.counts.most_rounds, int(self.holders.sizes.max(initial=0)))
        self._seen: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._waiting = _Candidates.none(self.holders.rounds)

    def run(self, progress: Progress = silent) -> None:
        """Add columns until there is no new one; `progress` is told how many clients can have one.

        In the end come patterns of which only somebody's counts say that they are columns.
        """
        own = self.holders.patterns[self.holders.sizes <= self._most]
        self._consider(own)
        clients = max(1, self.counts.windows.clients)
        for least in self._levels():
            while self._accept(self._waiting.held_by(least)):
                progress(min(len(self.columns), clients), clients)
                self._consider(self._common_to_holders())
        if not self.counts.settle and self.counts.known:
            own = own[fitting(self.counts, own) & ~_among(own, self.columns)]
            self._waiting = _Candidates(own, *self.holders.weigh(own))
            self._accept(np.ones(len(own), dtype=np.bool_))
        if not self.counts.settle:
            self._complete()

    def _complete(self) -> None:
        """Columns once more from the rows that need them, now that the others are known.

        A column that was found early may lack rounds: rows of two clients have in common what their columns
        have in common. It may also be a union, if its parts were found later.
        """
        parts = self.columns
        covered = cover(self.holders.patterns, parts)
        whole = np.array([self._needed(column, covered) for column in parts]).reshape(parts.shape)
        whole = np.unique(whole[whole.sum(axis=1) <= self._most], axis=0)
        whole = whole[fitting(self.counts, whole)]
        single = (union_of_parts(whole, whole) != whole).any(axis=1)
        self.columns = whole[single]
        self.rows, self.extra = self.holders.weigh(self.columns)
        self._explained = union_of_parts(self.holders.patterns, self.columns, proper=False)

    def _needed(self, column: NDArray[np.bool_], covered: NDArray[np.int32]) -> NDArray[np.bool_]:
        """(rounds,) what the rows have in common in which no other column covers a round of this one."""
        held = self.holders.of(np.flatnonzero(column))
        held = held[(covered[held][:, column] == 1).any(axis=1)]
        rows = self.holders.support[held]
        if rows.sum() < LEAST_ROWS:
            return column
        return np.asarray(column | (rows @ self.holders.patterns[held] >= MOST_OF_THEM * rows.sum()))

    def _levels(self) -> list[int]:
        """Fewest rows that hold a column, from the highest demand to the lowest."""
        if self.counts.settle:
            return [1]
        top = int(self._waiting.rows.max(initial=0))
        levels = [top >> k for k in range(1, 64) if top >> k > LEAST_ROWS]
        return [*levels, LEAST_ROWS]

    def _consider(self, columns: NDArray[np.bool_]) -> None:
        """Let candidates (m, rounds) wait that are new and fit somebody's counts."""
        keys = [row.tobytes() for row in np.packbits(columns, axis=1)]
        new = [i for i, key in enumerate(keys) if key not in self._seen]
        self._seen.update(keys[i] for i in new)
        columns = columns[new]
        if len(columns) and not self.counts.settle:
            columns = np.array([self.holders.in_common(np.flatnonzero(column)) for column in columns])
            columns = np.unique(columns, axis=0)
            keys = [row.tobytes() for row in np.packbits(columns, axis=1)]
            columns = columns[[key not in self._settled for key in keys]]
            self._settled.update(keys)
        columns = columns[columns.sum(axis=1) <= self._most]
        columns = columns[fitting(self.counts, columns)]
        self._waiting = self._waiting.plus(_Candidates(columns, *self.holders.weigh(columns)))

    def _accept(self, ready: NDArray[np.bool_]) -> bool:
        """Take over the candidates that are `ready`, unless they are unions of columns."""
        if not ready.any():
            return False
        chosen, self._waiting = self._waiting.of(ready), self._waiting.of(~ready)
        parts = np.concatenate((self.columns, chosen.columns))
        single = (union_of_parts(chosen.columns, parts) != chosen.columns).any(axis=1)
        if not self.counts.settle:
            single &= _more_than_a_column(chosen.columns, parts) < MOST_DOUBT
        chosen = chosen.of(single)
        self._explained |= union_of_parts(self.holders.patterns, chosen.columns, proper=False)
        self.columns = np.concatenate((self.columns, chosen.columns))
        self.rows = np.concatenate((self.rows, chosen.rows))
        self.extra = np.concatenate((self.extra, chosen.extra))
        return True

    def _common_to_holders(self) -> NDArray[np.bool_]:
        """What the holders of each unexplained rest have in common, if there are at least two of them."""
        rest = self.holders.patterns & ~self._explained
        left = rest.sum(axis=1)
        found = [np.zeros((0, self.holders.rounds), dtype=np.bool_)]
        for i in np.flatnonzero((left >= LEAST_REST) & (left <= self._most)).tolist():
            if i >= self.holders.asked(int(left[i])):
                continue
            held = self.holders.of(np.flatnonzero(rest[i]))
            if len(held) > 1:
                found.append(np.logical_and.reduce(self.holders.patterns[held], axis=0, keepdims=True))
        return np.unique(np.concatenate(found), axis=0)

    def doubt(self) -> NDArray[np.float64]:
        """(n,) the odds, by the patterns alone, that one of the `columns` is no client's column.

        It may have a round too many. Or it is a union of two columns that were not found: among pairs of
        columns that were found, so many have as many rows in common. The share of patterns that are not
        explained tells how many columns are missing.
        """
        sizes = self.columns.sum(axis=1)
        if not len(sizes):
            return np.zeros(0)
        small = np.flatnonzero(self.holders.sizes <= 2 * np.median(sizes))
        rest = self.holders.patterns[small] & ~self._explained[small]
        unexplained: NDArray[np.bool_] = np.asarray(rest.any(axis=1))
        missing = (unexplained.sum() + 0.5) / ((~unexplained).sum() + 0.5)
        # Whatever the rows say, no more patterns can be mistaken for columns than there are.
        strangers = 1 + int((unexplained & (self.holders.sizes[small] <= self._most)).sum())
        as_often = len(self.common_rows) - np.searchsorted(self.common_rows, self.rows) + 0.5
        by_rows = np.minimum(np.expm1(np.minimum(self.extra, 50)) + missing**2 * as_often, strangers)
        more = 0.0 if self.counts.settle else _more_than_a_column(self.columns, self.columns)
        # A union has as many rows as this one seldom, if few pairs of columns have.
        return np.asarray(by_rows + more * as_often / (len(self.common_rows) + 0.5))

    @cached_property
    def common_rows(self) -> NDArray[np.int64]:
        """For every pair of columns with rows in common, how many rows hold both; in ascending order."""
        held = [self.holders.of(np.flatnonzero(column)) for column in self.columns]
        ends = np.cumsum([0, *map(len, held)])
        index = np.concatenate([np.zeros(0, np.intp), *held])
        shape = (len(held), len(self.holders.sizes))
        weights = self.holders.support.astype(np.float32)[index]
        both = (
            csr_matrix((weights, index, ends), shape=shape)
            @ csr_matrix((np.ones_like(weights), index, ends), shape=shape).T
        )
        return np.sort(triu(both, k=1).data.astype(np.int64))


def _among(columns: NDArray[np.bool_], others: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) which of the `columns` (n, rounds) are among the `others` (m, rounds)."""
    known = {row.tobytes() for row in np.packbits(others, axis=1)}
    return np.array([row.tobytes() in known for row in np.packbits(columns, axis=1)], dtype=np.bool_)


def _more_than_a_column(columns: NDArray[np.bool_], parts: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(n,) the odds that one of the `columns` (n, rounds) is one of the `parts` (m, rounds) and more.

    Hardly any client's column has all rounds of another one, unless these are few. Otherwise the rounds of
    two clients, or a round too many, are taken for a column.
    """
    small, whole = csr_matrix(parts, dtype=np.float32), csr_matrix(columns, dtype=np.float32)
    size, whole_size = np.asarray(small.sum(axis=1)).ravel(), np.asarray(whole.sum(axis=1)).ravel()
    common = (whole @ small.T).tocoo()
    inside = (common.data == size[common.col]) & (common.data < whole_size[common.row])
    row, part = common.row[inside], common.col[inside].astype(np.intp)
    alike = np.bincount(size.astype(np.intp))[size.astype(np.intp)[part]]
    by_chance = alike * (whole_size[row] / columns.shape[1]) ** size[part]
    odds = np.zeros(len(columns))
    np.maximum.at(odds, row, TOO_MUCH / np.maximum(by_chance, 1e-12))
    return odds


@dataclass(frozen=True, eq=False)
class _Candidates:
    columns: NDArray[np.bool_]
    rows: NDArray[np.int64]
    extra: NDArray[np.float64]

    @classmethod
    def none(cls, rounds: int) -> _Candidates:
        return cls(np.zeros((0, rounds), dtype=np.bool_), np.zeros(0, dtype=np.int64), np.zeros(0))

    def of(self, chosen: NDArray[np.bool_]) -> _Candidates:
        return _Candidates(self.columns[chosen], self.rows[chosen], self.extra[chosen])

    def held_by(self, least: int) -> NDArray[np.bool_]:
        return np.asarray((self.rows >= least) & ((self.extra < MOST_EXTRA) | (least == 1)))

    def plus(self, other: _Candidates) -> _Candidates:
        return _Candidates(
            np.concatenate((self.columns, other.columns)),
            np.concatenate((self.rows, other.rows)),
            np.concatenate((self.extra, other.extra)),
        )

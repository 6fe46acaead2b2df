"""Which patterns hold a set of rounds, and how surprising that is: an inverted index of bits.

All rows that a client moves hold the client's column. Rows of others hold it only by chance, and the chance
is small for rows that seldom move. So the rounds that all holders have in common are the client's column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHANCE_HOLDERS = 0.02
"""Expected number of patterns that hold a set by chance among those that are asked."""
MOST_OF_THEM = 0.9
"""Share of a client's rows in which each of its rounds is found; the others hold the rest by chance."""
LEAST_COMMON = 2
"""Fewest rounds that rows need to have in common."""
STEPS = 5
"""Most votes about what rows have in common."""


class Holders:
    """The `patterns` (n, rounds), those with the fewest rounds first, with the number of rows of each.

    One bit per pattern and round: a set of ten rounds is looked up in a million patterns within a
    millisecond.
    """

    def __init__(self, patterns: NDArray[np.bool_], support: NDArray[np.int64]) -> None:
        sizes = patterns.sum(axis=1)
        order = np.argsort(sizes, kind="stable")
        self.patterns: NDArray[np.bool_] = patterns[order]
        self.support: NDArray[np.int64] = support[order]
        self.sizes: NDArray[np.int64] = sizes[order]
        self.log_density: NDArray[np.float64] = np.log(self.sizes / max(1, patterns.shape[1]))
        bits = np.packbits(np.ascontiguousarray(self.patterns.T), axis=1)
        self._bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)
        self._asked: dict[tuple[int, int], int] = {}

    @property
    def rounds(self) -> int:
        """Number of rounds of every pattern."""
        return int(self.patterns.shape[1])

    def asked(self, size: int, ways: int = 1) -> int:
        """How many of the first patterns are so small that none holds `size` given rounds by chance.

        If the rounds may be chosen in several `ways`, each of them is a chance.
        """
        if (size, ways) not in self._asked:
            chance = ways * np.cumsum(np.exp(size * self.log_density))
            self._asked[size, ways] = int(np.searchsorted(chance, CHANCE_HOLDERS))
        return self._asked[size, ways]

    def of(self, rounds: NDArray[np.intp]) -> NDArray[np.intp]:
        """The patterns that hold all of these rounds, among those that hardly do by chance."""
        first = self.asked(len(rounds))
        words = -(-first // 64)
        both = np.bitwise_and.reduce(self._bits[rounds, :words], axis=0)
        return np.flatnonzero(np.unpackbits(both.view(np.uint8), count=first))

    def nearly(self, rounds: NDArray[np.intp]) -> NDArray[np.intp]:
        """The patterns that hold all of these rounds but one at most; again hardly any by chance."""
        first = self.asked(len(rounds) - 1, ways=len(rounds))
        words = -(-first // 64)
        every = np.full(words, ~np.uint64(0))
        but_one = np.zeros(words, dtype=np.uint64)
        for moved in self._bits[rounds, :words]:
            but_one = (but_one & moved) | (every & ~moved)
            every &= moved
        return np.flatnonzero(np.unpackbits((every | but_one).view(np.uint8), count=first))

    def in_common(self, rounds: NDArray[np.intp]) -> NDArray[np.bool_]:
        """(rounds,) what the rows that nearly hold these rounds have in common; nothing if there are none.

        A round that was picked by chance is missing in most of them. A row that holds the rest by chance is
        outvoted. This is repeated until nothing changes.
        """
        for _ in range(STEPS):
            held = np.union1d(self.of(rounds), self.nearly(rounds))
            if not len(held):
                break
            rows = self.support[held]
            shared = rows @ self.patterns[held] >= MOST_OF_THEM * rows.sum()
            common = np.flatnonzero(shared)
            if np.array_equal(common, rounds) or len(common) < LEAST_COMMON:
                break
            rounds = common
        column = np.zeros(self.rounds, dtype=np.bool_)
        column[rounds] = True
        return column

    def weigh(self, columns: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(m,) how many rows hold each of the `columns` (m, rounds), and how many rounds it has too many.

        The second is the expected number of rounds, besides the client's own, that all holders have in
        common by chance.
        """
        rows, extra = np.zeros(len(columns), dtype=np.int64), np.zeros(len(columns))
        for i, column in enumerate(columns):
            held = self.of(np.flatnonzero(column))
            rows[i] = self.support[held].sum()
            extra[i] = (self.rounds - column.sum()) * np.exp(self.log_density[held].sum())
        return rows, extra

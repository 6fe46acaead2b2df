"""Whose column a pattern is: by the counts, and by how easily another pattern would have the same counts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from attacks.disaggregation.columns.attribution import FORBIDDEN_COST, RATIO_BOUND
from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.matching import pair_marginals, without_exchange

PAIRS_AT_A_TIME = 1 << 24
"""Pairs of a client and a column that are compared at a time."""


def fitting(counts: CountModel, columns: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) whether a column (n, rounds) fits the counts of at least one client."""
    fits = np.zeros(len(columns), dtype=np.bool_)
    short = np.flatnonzero(columns.sum(axis=1) <= counts.most_rounds)
    for some in _blocks(counts, short):
        fits[some] = (counts.cost(columns[some]) < FORBIDDEN_COST).any(axis=0)
    return fits


def _blocks(counts: CountModel, columns: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    step = max(1, PAIRS_AT_A_TIME // max(1, counts.windows.clients))
    return [columns[i : i + step] for i in range(0, len(columns), step)]


@dataclass(frozen=True, eq=False)
class Fits:
    """The pairs of a `client` and a `column` that the counts allow, with their `cost`: (pairs,) each.

    There are `clients` × `columns` pairs in all. With exact counts hardly any is allowed, so that nothing
    here needs memory for all of them.
    """

    clients: int
    columns: int
    client: NDArray[np.intp]
    column: NDArray[np.intp]
    cost: NDArray[np.float64]

    @classmethod
    def of(cls, counts: CountModel, columns: NDArray[np.bool_]) -> Fits:
        """All pairs of a client of the counts and one of the `columns` (n, rounds) that fit."""
        client, column, cost = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)], [np.zeros(0)]
        for some in _blocks(counts, np.arange(len(columns))):
            table = counts.cost(columns[some])
            k, j = np.nonzero(table < FORBIDDEN_COST)
            client.append(k)
            column.append(some[j])
            cost.append(table[k, j])
        pairs = np.concatenate(client), np.concatenate(column), np.concatenate(cost)
        return cls(counts.windows.clients, len(columns), *pairs)

    def marginals(self, *, unknown: NDArray[np.float64], doubt: NDArray[np.float64]) -> NDArray[np.float64]:
        """(pairs,) the probability of each pair, over all matchings of clients and columns.

        `unknown` (clients,) is the likelihood of a client's counts if it has a column that was not found,
        and `doubt` (n,) the odds that a column is nobody's.
        """
        return pair_marginals(self.client, self.column, self._likelihood, unknown, doubt)

    def named(self, chance: NDArray[np.float64]) -> NDArray[np.intp]:
        """(clients,) the index of each client's column, −1 if none is left for it.

        As many clients as possible get one, and then as many as can be expected to get their own, by the
        `chance` (pairs,) of each pair: the likeliest matching as a whole names fewer of them correctly.
        Clients and columns that no chain of fits connects do not matter to each other.
        """
        from scipy.optimize import linear_sum_assignment

        column = np.full(self.clients, -1, dtype=np.intp)
        edges = coo_matrix(
            (np.ones(len(self.client)), (self.client, self.clients + self.column)),
            shape=(self.clients + self.columns,) * 2,
        )
        _, part = connected_components(edges, directed=False)
        order = np.argsort(part[self.client], kind="stable")
        starts = np.flatnonzero(np.diff(part[self.client][order], prepend=-1, append=-1))
        for first, last in itertools.pairwise(starts):
            pairs = order[first:last]
            who, k = np.unique(self.client[pairs], return_inverse=True)
            what, j = np.unique(self.column[pairs], return_inverse=True)
            table = np.full((len(who), len(what)), FORBIDDEN_COST)
            table[k, j] = -chance[pairs]
            chosen = linear_sum_assignment(table)
            fits = table[chosen] < FORBIDDEN_COST
            column[who[chosen[0][fits]]] = what[chosen[1][fits]]
        return column

    def confidence(self, column: NDArray[np.intp], chance: NDArray[np.float64]) -> NDArray[np.float64]:
        """(clients,) the probability that the assigned `column` (clients,) is the client's own.

        It is the `chance` (pairs,) of the pair, or less if two or three clients may have exchanged columns.
        """
        sure = np.zeros(self.clients)
        own = column[self.client] == self.column
        sure[self.client[own]] = chance[own]
        shape = self.clients, self.columns
        table = csr_matrix((self._likelihood, (self.client, self.column)), shape=shape)
        return np.minimum(sure, without_exchange(table, column))

    @cached_property
    def _likelihood(self) -> NDArray[np.float64]:
        return np.asarray(np.exp(-np.minimum(self.cost / 2, RATIO_BOUND)))

"""Who is behind a row: group testing with the recovered columns as tests.

A client that moves a row moves it in all of its rounds. So a client is ruled out by one of its rounds in
which the row stood still, and it is needed if nobody else can have moved the row in one of its rounds.
Between the two, few authors are likelier than many: every round in which the row moved needs one.

A client takes part in few rounds, so that everything here is sparse: work and memory grow with the number of
possible authors, not with rows × clients × rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit

from attacks.disaggregation.sparse.traces import Traces

ENTRIES_AT_A_TIME = 1 << 21
"""Rounds of possible authors, over all rows of a block, that are looked at together."""
PASSES = 3
"""Estimates of how many rows each client moves, each from the one before."""
STEPS, DAMPING = 25, 0.5
"""Steps of belief propagation within a row, and how much of the old belief each keeps."""
LEAST_ODDS = 1e-6
MOST_POSSIBLE = 500
"""Possible authors of a row above which its rounds are not looked at: each of them is in many rounds."""


def authorship(traces: Traces, columns: NDArray[np.bool_], *, missing: int = 0) -> csr_matrix:
    """(n, K) the probability that a client moved the rows of each of the n patterns.

    `columns` (rounds, K) are the recovered ones, all False for a client without one, which gets 0. `missing`
    clients have no column. If there are none, a client that nobody can stand in for is certain (1).
    A client's rows are a priori as many as it moves elsewhere, and a row's authors as many as the rounds in
    which it moved suggest. If very many clients are possible, nothing but this tells about them.
    """
    present: NDArray[np.bool_] = np.asarray(columns.any(axis=0))
    rounds, clients = len(columns), int(present.sum()) + missing
    found = possible_authors(traces.patterns, columns)
    if not found.nnz:
        return found
    rate = float(np.clip(columns[:, present].mean(), 1e-3, 0.99))
    moved = np.minimum(traces.sizes / rounds, 1 - 0.5 / rounds)
    authors = np.minimum(np.log1p(-moved) / np.log1p(-rate), clients)
    stranger = 1 - (1 - rate * authors / clients) ** missing
    possible = np.diff(found.indptr)
    row = np.repeat(np.arange(len(possible)), possible)
    attendance = csr_matrix(columns.T)
    blocks = _blocks(possible <= MOST_POSSIBLE, found, attendance)
    share = np.where(present, 1 / clients, 0.0)
    for _ in range(PASSES):
        prior = np.clip(authors[row] * share[found.indices], LEAST_ODDS, 0.95)
        found.data[:] = prior
        for pairs in blocks:
            tests = _Tests.of(row[pairs], found.indices[pairs].astype(np.intp), attendance)
            found.data[pairs] = tests.beliefs(prior[pairs], stranger[row[pairs]])
        rows = np.asarray(found.T @ traces.support.astype(np.float64)).ravel()
        share = rows / max(float(rows.sum()), 1e-30) * (present.sum() / clients)
    return found


def possible_authors(patterns: NDArray[np.bool_], columns: NDArray[np.bool_]) -> csr_matrix:
    """(n, K) an entry, 0, for each client with a column all of whose rounds are in a pattern (n, rounds).

    One bit per pattern and round: all patterns are compared with a client's rounds at once.
    """
    bits = np.packbits(patterns.T, axis=1)
    inside = [
        np.flatnonzero(np.unpackbits(np.bitwise_and.reduce(bits[column]), count=len(patterns)))
        if column.any()
        else np.zeros(0, np.intp)
        for column in columns.T
    ]
    ends = np.cumsum([0, *map(len, inside)])
    shape = columns.shape[1], len(patterns)
    entries = np.zeros(ends[-1], np.float32), np.concatenate(inside), ends
    return csr_matrix(csr_matrix(entries, shape=shape).T.tocsr())


def _blocks(
    looked_at: NDArray[np.bool_], found: csr_matrix, attendance: csr_matrix
) -> list[NDArray[np.intp]]:
    """Indices of the pairs of all rows that are `looked_at` (n,), whole rows in blocks of some entries."""
    entries = np.diff(attendance.indptr)[found.indices]
    until = np.concatenate(([0], np.cumsum(entries)))[found.indptr]
    row = np.repeat(np.arange(len(looked_at)), np.diff(found.indptr))
    pairs = np.flatnonzero(looked_at[row])
    block = until[:-1][row[pairs]] // ENTRIES_AT_A_TIME
    return np.split(pairs, np.flatnonzero(np.diff(block)) + 1) if len(pairs) else []


@dataclass(frozen=True, eq=False)
class _Tests:
    """Possible authors, `pairs` of a row and a client, in the tests that they are in: a row in a round.

    Entry e says that the author `pair[e]` was there in the test `test[e]`; entries of a pair are together.
    """

    pairs: int
    pair: NDArray[np.intp]
    test: NDArray[np.intp]

    @classmethod
    def of(cls, row: NDArray[np.intp], client: NDArray[np.intp], attendance: csr_matrix) -> _Tests:
        """For pairs of a `row` and a `client` (pairs,) each; `attendance` (K, rounds) holds the columns."""
        there = attendance[client]
        pair = np.repeat(np.arange(len(client)), np.diff(there.indptr))
        _, test = np.unique(row[pair] * attendance.shape[1] + there.indices, return_inverse=True)
        return cls(len(client), pair, test.ravel())

    def beliefs(self, prior: NDArray[np.float64], stranger: NDArray[np.float64]) -> NDArray[np.float64]:
        """(pairs,) the probability of each possible author, by belief propagation.

        In every test at least one author was there, or with the probability `stranger` (pairs,), the same for
        all pairs of a row, a client without a column.
        """
        pair, test = self.pair, self.test
        alone = np.bincount(test)[test] == 1
        certain = np.zeros(self.pairs, dtype=np.bool_)
        certain[pair[alone & (stranger[pair] == 0)]] = True
        # A test in which a certain author was tells nothing about the others.
        open_ = np.bincount(test, certain[pair])[test] == 0
        pair, test = pair[open_], test[open_]
        odds, no_stranger = np.log(prior / (1 - prior)), np.log1p(-stranger[pair])
        q = np.where(certain, 1.0, prior)
        for _ in range(STEPS):
            absent = np.log1p(-np.minimum(q, 1 - 1e-12))[pair]
            nobody_else = no_stranger + np.bincount(test, absent)[test] - absent
            somebody_else = np.log(np.maximum(-np.expm1(np.minimum(nobody_else, 0)), 1e-12))
            new = expit(odds - np.bincount(pair, somebody_else, minlength=self.pairs))
            q = DAMPING * q + (1 - DAMPING) * new
        return np.where(certain, 1.0, np.minimum(q, 1 - 1e-6))

"""Who is behind a row: group testing with the recovered columns as tests.

A client that moves a row moves it in all of its rounds. So a client is ruled out by one of its rounds in
which the row stood still, and it is needed if nobody else can have moved the row in one of its rounds.
Between the two, few authors are likelier than many: every round in which the row moved needs one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit

from attacks.disaggregation.sparse.traces import Traces

PATTERNS_AT_A_TIME = 1 << 12
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
    P = columns.astype(np.float32)
    present: NDArray[np.bool_] = np.asarray(columns.any(axis=0))
    rounds, clients = len(columns), int(present.sum()) + missing
    shape = len(traces.patterns), columns.shape[1]
    if not present.any():
        return csr_matrix(np.zeros(shape, dtype=np.float32))
    rate = float(np.clip(P[:, present].mean(), 1e-3, 0.99))
    moved = np.minimum(traces.sizes / rounds, 1 - 0.5 / rounds)
    authors = np.minimum(np.log1p(-moved) / np.log1p(-rate), clients)
    possible = [_possible(Z, P, present) for Z in _batches(traces.patterns)]
    inside = [members for batch in possible for members in batch]
    ends = np.cumsum([0, *map(len, inside)])
    found = csr_matrix((np.zeros(ends[-1], np.float32), np.concatenate(inside), ends), shape=shape)
    share = np.where(present, 1 / clients, 0.0)
    for _ in range(PASSES):
        for row, members in enumerate(inside):
            if len(members):
                prior = np.clip(authors[row] * share[members], LEAST_ODDS, 0.95)
                stranger = 1 - (1 - rate * authors[row] / clients) ** missing
                if len(members) <= MOST_POSSIBLE:
                    prior = _beliefs(columns[traces.patterns[row]][:, members], prior, stranger)
                found.data[ends[row] : ends[row + 1]] = prior
        rows = np.asarray(found.T @ traces.support.astype(np.float64)).ravel()
        share = rows / max(float(rows.sum()), 1e-30) * (present.sum() / clients)
    return found


def _batches(patterns: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    return [patterns[i : i + PATTERNS_AT_A_TIME] for i in range(0, len(patterns), PATTERNS_AT_A_TIME)]


def _possible(
    Z: NDArray[np.bool_], P: NDArray[np.float32], present: NDArray[np.bool_]
) -> list[NDArray[np.intp]]:
    """Per pattern, the clients that have a column and all of whose rounds are in it."""
    inside = ((~Z).astype(np.float32) @ P < 0.5) & present
    return [np.flatnonzero(row) for row in inside]


def _beliefs(tests: NDArray[np.bool_], prior: NDArray[np.float64], stranger: float) -> NDArray[np.float64]:
    """(m,) the probability of each possible author, by belief propagation.

    `tests` (rounds, m) says who was there in the rounds in which the row moved. In each of them at least one
    author was, or with probability `stranger` a client without a column.
    """
    covered = tests[tests.any(axis=1)]
    alone = covered[covered.sum(axis=1) == 1].any(axis=0)
    odds, belief = np.log(prior / (1 - prior)), np.where(alone & (stranger == 0), 1.0, prior)
    free = ~alone if stranger == 0 else np.ones(len(prior), dtype=np.bool_)
    # A round in which a certain author was tells nothing about the others.
    open_ = covered[~covered[:, ~free].any(axis=1)][:, free].astype(np.float64)
    if not free.any() or not len(open_):
        return belief
    q = belief[free]
    for _ in range(STEPS):
        absent = np.log1p(-np.minimum(q, 1 - 1e-12))
        nobody_else = np.log1p(-stranger) + (open_ @ absent)[:, None] - absent
        somebody_else = np.log(np.maximum(-np.expm1(np.minimum(nobody_else, 0)), 1e-12))
        q = DAMPING * q + (1 - DAMPING) * expit(odds[free] - (open_ * somebody_else).sum(axis=0))
    belief[free] = np.minimum(q, 1 - 1e-6)
    return belief

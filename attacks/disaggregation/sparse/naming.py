"""Whose column a pattern is: by the counts, and by how easily another pattern would have the same counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.columns.attribution import FORBIDDEN_COST, RATIO_BOUND, Attribution
from attacks.disaggregation.sparse.count_model import CountModel

PATTERNS_AT_A_TIME = 1 << 12
EVIDENCE_PER_ROW = 4.0
"""How much a column with twice as many rows is preferred among columns that fit, in units of the cost."""


def fitting(counts: CountModel, columns: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) whether a column (n, rounds) fits the counts of at least one client."""
    fits = np.zeros(len(columns), dtype=np.bool_)
    for start in range(0, len(columns), PATTERNS_AT_A_TIME):
        some = columns[start : start + PATTERNS_AT_A_TIME]
        fits[start : start + len(some)] = (counts.cost(some) < FORBIDDEN_COST).any(axis=0)
    return fits


def named(counts: CountModel, columns: NDArray[np.bool_], support: NDArray[np.int64]) -> NDArray[np.intp]:
    """(K,) the index of the column that fits a client's counts, −1 if none does.

    As many clients as possible get one; of several columns that fit, those with the largest `support` (n,).
    """
    from scipy.optimize import linear_sum_assignment

    column = np.full(counts.windows.clients, -1, dtype=np.intp)
    if not len(columns):
        return column
    cost = counts.cost(columns)
    rows, chosen = linear_sum_assignment(cost - EVIDENCE_PER_ROW * np.log2(support))
    fits = cost[rows, chosen] < FORBIDDEN_COST
    column[rows[fits]] = chosen[fits]
    return column


def confidence(
    counts: CountModel,
    columns: NDArray[np.bool_],
    support: NDArray[np.int64],
    column: NDArray[np.intp],
    *,
    strangers: NDArray[np.int64],
) -> NDArray[np.float64]:
    """(K,) the probability that the assigned `column` (K,) is the client's own.

    Two clients may have to exchange columns, a client without a column may be the real owner, or a column
    that nobody got may be the client's, weighed by its `support` (n,). And a column may be none at all, but a
    union that has the counts by chance: `strangers` (n,) is the number of unions that could have been taken
    for a column, had they had the counts.
    """
    sure = np.zeros(counts.windows.clients)
    took = np.flatnonzero(column >= 0)
    if not len(took):
        return sure
    cost = counts.cost(columns)
    sure[took] = Attribution(column, cost).confidence[took]
    own = cost[took, column[took]]
    without = cost[column < 0][:, column[took]]
    owners = np.exp(np.clip((own - without) / 2, -RATIO_BOUND, RATIO_BOUND)).sum(axis=0)
    free = np.setdiff1d(np.arange(len(columns)), column[took])
    rows = EVIDENCE_PER_ROW * (np.log2(support[free])[None, :] - np.log2(support[column[took]])[:, None])
    rivals = own[:, None] - cost[np.ix_(took, free)] + rows
    owners += np.exp(np.clip(rivals / 2, -RATIO_BOUND, RATIO_BOUND)).sum(axis=1)
    # A union of the same counts is as likely as its counts are for a random column.
    chance = counts.chance(columns[column[took]].mean(axis=1), took) * np.exp(
        np.minimum(own / 2, RATIO_BOUND)
    )
    # One is added: that no stranger was seen does not mean that there can be none.
    sure[took] /= (1 + owners) * (1 + (strangers[column[took]] + 1) * chance)
    return sure

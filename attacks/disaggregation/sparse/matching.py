"""How probable each pair is in a random matching: belief propagation on the bipartite graph.

The probability of a matching is proportional to the product of the weights of its pairs and of the nodes that
stay alone. Belief propagation sees exchanges between any number of clients. It is exact on trees. On short
cycles it is too sure, so that exchanges of two and three are computed besides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, identity

STEPS, DAMPING = 200, 0.5
"""Most steps, and how much of the old messages each keeps."""
CLOSE = 1e-4
"""Largest change of a message in a step, relative to its size, at which the steps end."""
LEAST = 1e-30
"""Least weight of a node without a partner, so that no division is by zero."""


def pair_marginals(
    left: NDArray[np.intp],
    right: NDArray[np.intp],
    weight: NDArray[np.float64],
    alone_left: NDArray[np.float64],
    alone_right: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(pairs,) the probability of each pair of `left` and `right` with this `weight`, (pairs,) each.

    `alone_left` and `alone_right` are the weights of nodes that have no partner.
    """
    alone_left, alone_right = np.maximum(alone_left, LEAST), np.maximum(alone_right, LEAST)
    wanted = np.ones(len(weight))  # 1 / (weight of all other ways to occupy the right node)
    for _ in range(STEPS):
        offers = weight * wanted
        others = np.maximum(_total(left, offers, len(alone_left))[left] - offers, 0)
        chosen = weight / (alone_left[left] + others)
        others = np.maximum(_total(right, chosen, len(alone_right))[right] - chosen, 0)
        new = 1 / (alone_right[right] + others)
        change = np.abs(new / wanted - 1).max(initial=0)
        wanted = wanted**DAMPING * new ** (1 - DAMPING)
        if change < CLOSE:
            break
    offers = weight * wanted
    return np.asarray(offers / (alone_left[left] + _total(left, offers, len(alone_left))[left]))


def without_exchange(likelihood: csr_matrix, column: NDArray[np.intp]) -> NDArray[np.float64]:
    """(left,) the probability of each node's partner `column` (left,) if two or three may exchange theirs.

    `likelihood` (left, right) is 0 for pairs that cannot be. Nodes without a partner (−1) get 0.
    """
    sure = np.zeros(len(column))
    took = np.flatnonzero(column >= 0)
    crossed = likelihood[took][:, column[took]]
    ratio = (diags(1 / crossed.diagonal()) @ crossed - identity(len(took))).tocsr()
    exchanges = np.asarray((ratio + ratio @ ratio).multiply(ratio.T).sum(axis=1)).ravel()
    sure[took] = 1 / (1 + exchanges)
    return sure


def _total(node: NDArray[np.intp], value: NDArray[np.float64], nodes: int) -> NDArray[np.float64]:
    return np.asarray(np.bincount(node, value, minlength=nodes), dtype=np.float64)

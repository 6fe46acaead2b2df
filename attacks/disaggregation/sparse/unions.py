"""Which part of a pattern other patterns explain: rows of several authors show unions of columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

PAIRS_AT_A_TIME = 1 << 25
"""Pairs of patterns that are compared at a time."""


def union_of_parts(
    wholes: NDArray[np.bool_], parts: NDArray[np.bool_], *, proper: bool = True
) -> NDArray[np.bool_]:
    """(n, rounds) for each of the `wholes` (n, rounds) the union of all `parts` (m, rounds) inside it.

    A part that equals the whole counts only if parts need not be `proper`.
    """
    return cover(wholes, parts, proper=proper) > 0


def cover(wholes: NDArray[np.bool_], parts: NDArray[np.bool_], *, proper: bool = False) -> NDArray[np.int32]:
    """(n, rounds) in how many `parts` (m, rounds) inside each of the `wholes` (n, rounds) a round is."""
    small = csr_matrix(parts, dtype=np.float32)
    size = np.asarray(small.sum(axis=1)).ravel()
    covered = np.zeros(wholes.shape, dtype=np.int32)
    step = max(1, PAIRS_AT_A_TIME // max(1, len(parts)))
    for start in range(0, len(wholes), step):
        some = wholes[start : start + step]
        common = (small @ csr_matrix(some, dtype=np.float32).T).tocoo()
        whole_size = some.sum(axis=1)
        inside = common.data == size[common.row]
        if proper:
            inside &= size[common.row] < whole_size[common.col]
        chosen = csr_matrix(
            (np.ones(int(inside.sum()), np.float32), (common.col[inside], common.row[inside])),
            shape=(len(some), len(parts)),
        )
        covered[start : start + step] = (chosen @ small).toarray()
    return covered

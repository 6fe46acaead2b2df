"""Columns inside other columns: take them apart, and keep independent ones.

Where two clients never take part together, the sum of their columns is binary too, and lies in the same
space. Such a sum contains each of its parts. Among independent clients one column hardly ever contains
another by chance, unless the inner one is short or the outer one is long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def taken_apart(
    columns: NDArray[np.uint8], *, slack: float = 0.0, same: float = 0.0, coincidence: float = np.inf
) -> NDArray[np.uint8]:
    """(n', rounds) the different `columns` (n, rounds), none of which contains another, short before long.

    A column that contains another loses the other's ones. Without `slack` the span stays the same. With
    noise, a column is inside another if all but a fraction `slack` of its ones are, and two columns are the
    same if they differ in at most a fraction `same` of their ones. A column that contains another by chance
    stays whole: that is, if at least `coincidence` pairs of n random columns are expected to do the same.
    """
    columns, ones_before = columns[columns.any(axis=1)], -1
    while ones_before != int(columns.sum(dtype=np.int64)):
        ones_before = int(columns.sum(dtype=np.int64))
        kept = np.zeros((0, columns.shape[1]), dtype=np.float32)
        for row in np.argsort(columns.sum(axis=1), kind="stable"):
            chance = coincidence / len(columns) ** 2
            rest = _without_parts(columns[row].astype(np.float32), kept, slack, chance)
            differing = np.abs(kept - rest).sum(axis=1)
            if rest.any() and not (differing <= same * rest.sum()).any():
                kept = np.concatenate((kept, rest[None]))
        columns = kept.astype(np.uint8)
    return columns


def _without_parts(
    column: NDArray[np.float32], others: NDArray[np.float32], slack: float, chance: float
) -> NDArray[np.float32]:
    """A column less the largest other inside it, repeated while there is a smaller one inside."""
    size = others.sum(axis=1)
    while True:
        inside = (others @ column >= (1 - slack) * size) & (size < (1 - 2 * slack) * column.sum())
        inside &= column.mean() ** size.astype(np.float64) < chance
        if not inside.any():
            return column
        column = column * (1 - others[np.where(inside, size, 0).argmax()])


def shortest_first(columns: NDArray[np.uint8]) -> NDArray[np.intp]:
    """(n,) the order of the `columns` (n, rounds) by their number of ones."""
    return np.argsort(columns.sum(axis=1, dtype=np.int64), kind="stable")


def independent(
    vectors: NDArray[np.float64], order: NDArray[np.intp], *, tolerance: NDArray[np.float64] | float
) -> list[int]:
    """Rows of `vectors` (n, dim) that are linearly independent, chosen greedily in this `order`.

    A row is dependent if it is within its `tolerance` (n,) of the span of the rows before it. The greedy
    choice is optimal for any order by weight, because linear independence is a matroid.
    """
    kept: list[int] = []
    tolerances = np.broadcast_to(tolerance, len(vectors))
    Q = np.zeros((min(vectors.shape), vectors.shape[1]))
    for i in order.tolist():
        if len(kept) == len(Q):
            break
        basis = Q[: len(kept)]
        rest = vectors[i] - (basis @ vectors[i]) @ basis
        rest -= (basis @ rest) @ basis  # the second pass removes the rounding of the first
        length = np.linalg.norm(rest)
        if length > tolerances[i]:
            Q[len(kept)] = rest / length
            kept.append(i)
    return kept

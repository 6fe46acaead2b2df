"""Single clients' columns among all binary columns of a space.

A binary column in the space of P need not be one client's: where two clients never took part together, the
sum of their columns is binary too. Among independent clients a column hardly ever contains another by
chance, so one that does is taken apart; and of columns that depend on each other linearly, the rarest ones
are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def generators(columns: NDArray[np.uint8], *, total: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """Linearly independent rows with the span of `columns` (n, rounds), each as rare as can be.

    `total` (rounds,) is what all clients' columns add up to, the cohort sizes, if known. It decides whether a
    column inside another is there by chance.
    """
    whole = _rarest_independent(columns)
    if total is not None and np.array_equal(whole.sum(axis=0, dtype=np.int64), total):
        return whole
    return _rarest_independent(_taken_apart(columns))


def suspects(columns: NDArray[np.uint8], *, total: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """(n,) columns that may be another client's column more, or less: those disjoint from some other.

    With the `total` that a complete set of columns must have, the suspects are those that do not enter it
    exactly once.
    """
    floats = columns.astype(np.float64)
    if total is None:
        return np.asarray((floats @ floats.T == 0).any(axis=1))
    weight = np.linalg.lstsq(floats.T, total.astype(np.float64), rcond=None)[0]
    return np.asarray(np.abs(weight - 1) > 1e-3)


def _taken_apart(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Subtract from every column the largest other one inside it, until there is none.

    The span stays the same: by induction on their size, the columns subtracted are in it.
    """
    columns = columns[columns.any(axis=1)]
    while len(columns):
        columns = np.unique(columns, axis=0)
        floats = columns.astype(np.float32)
        size = floats.sum(axis=1)
        inside = floats @ floats.T == size[None, :]  # column j lies inside column i
        np.fill_diagonal(inside, False)
        largest = np.where(inside, size[None, :], 0).argmax(axis=1)
        divisible = inside.any(axis=1)
        if not divisible.any():
            break
        apart = columns.copy()
        apart[divisible] -= columns[largest[divisible]]
        columns = apart
    return columns


def _rarest_independent(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A basis of the span with as few ones as possible (greedy is optimal: independence is a matroid)."""
    kept: list[int] = []
    basis = np.zeros((columns.shape[1], 0))
    for row in np.argsort(columns.sum(axis=1), kind="stable"):
        column = columns[row].astype(np.float64)
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)  # the second pass removes the rounding of the first
        length = np.linalg.norm(rest)
        if length > 1e-6 * max(1.0, float(np.linalg.norm(column))):
            kept.append(int(row))
            basis = np.column_stack((basis, rest / length))
    return columns[kept]

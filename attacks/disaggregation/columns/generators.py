"""Single clients' columns among all binary columns of a space.

A binary column in the space of P need not be one client's: where two clients never took part together, the
sum of their columns is binary too. Among independent clients a column hardly ever contains another by
chance, so one that does is taken apart; and of columns that depend on each other linearly, the rarest ones
are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SURE = 0.99
"""Confidence in a column that lies in the space exactly and can be no part or sum of others."""
DOUBTFUL = 0.9
"""The same where only its being rare speaks for it."""


def generators(columns: NDArray[np.uint8], *, total: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """Linearly independent rows with the span of `columns` (n, rounds), each as rare as can be.

    `total` (rounds,) is what all clients' columns add up to, the cohort sizes, if known. It decides whether a
    column inside another is there by chance.
    """
    whole = _rarest_independent(columns)
    if total is not None and np.array_equal(whole.sum(axis=0, dtype=np.int64), total):
        return whole
    return _rarest_independent(taken_apart(columns))


def belief(columns: NDArray[np.uint8], *, total: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """(n,) how likely each of the `columns` is one client's whole column; `total` is for a complete set only.

    A column may lack the ones of another that it does not meet: in truth the rarer one is inside it. The
    total tells how often that happened. If it holds a column three times, two of the columns that do not meet
    it lack it, and which ones nobody can tell: the sums are the same. Without a total anything disjoint is
    doubtful. So is everything if some column enters the total less than once, or not a whole number of times:
    then one at least is nobody's.
    """
    floats = columns.astype(np.float64)
    disjoint = floats @ floats.T == 0
    if total is None:
        return np.where(disjoint.any(axis=1), DOUBTFUL, SURE)
    times = np.linalg.lstsq(floats.T, total.astype(np.float64), rcond=None)[0]
    lacking = np.rint(times).clip(1) - 1
    share = (lacking / disjoint.sum(axis=0).clip(1)).clip(0, 1)
    whole = np.prod(1 - share * disjoint, axis=1)
    fits = (np.abs(times - np.rint(times)) < 1e-3) & (np.rint(times) >= 1)
    return np.asarray((SURE if fits.all() else DOUBTFUL) * whole * np.where(fits, 1, 0.5))


def taken_apart(columns: NDArray[np.uint8], *, slack: float = 0.0, same: float = 0.0) -> NDArray[np.uint8]:
    """(n', rounds) columns without the others inside them, until none has another inside, each once.

    Without `slack` the span stays the same. With noise, a column is inside another if all but a part `slack`
    of its ones are, and two columns are one if they differ in no more than a part `same` of their ones.
    """
    columns, before = columns[columns.any(axis=1)], -1
    while before != int(columns.sum(dtype=np.int64)):
        before = int(columns.sum(dtype=np.int64))
        kept = np.zeros((0, columns.shape[1]), dtype=np.float32)
        for row in np.argsort(columns.sum(axis=1), kind="stable"):
            rest = _without(columns[row].astype(np.float32), kept, slack)
            differing = np.abs(kept - rest).sum(axis=1)
            if rest.any() and not (differing <= same * rest.sum()).any():
                kept = np.concatenate((kept, rest[None]))
        columns = kept.astype(np.uint8)
    return columns


def _without(column: NDArray[np.float32], others: NDArray[np.float32], slack: float) -> NDArray[np.float32]:
    """A column less the largest other inside it, as often as there is one that is really smaller."""
    size = others.sum(axis=1)
    while True:
        inside = (others @ column >= (1 - slack) * size) & (size < (1 - 2 * slack) * column.sum())
        if not inside.any():
            return column
        column = column * (1 - others[np.where(inside, size, 0).argmax()])


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

"""Single clients' columns among all binary columns of a space.

A binary column in the space of P need not be one client's: it may be a sum of columns that never meet.
Columns that contain others are taken apart, and of linearly dependent columns the rarest are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.columns.parts import independent, shortest_first, taken_apart

INDEPENDENT_CONFIDENCE = 0.99
"""Confidence in a column that lies in the space exactly, and cannot be a part or a sum of others."""
RAREST_CONFIDENCE = 0.9
"""Confidence in a column if only its rarity speaks for it."""
RANK_TOLERANCE = 1e-6
"""Distance from the span of other columns, relative to its own length, below which a column is dependent."""
WHOLE_TOLERANCE = 1e-3
"""Distance from a whole number below which a multiplicity counts as whole."""


def generators(columns: NDArray[np.uint8], *, total: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """Linearly independent rows with the span of `columns` (n, rounds) and as few ones as possible.

    `total` (rounds,) is the sum of all clients' columns, the cohort sizes, if known. If the rarest columns
    add up to it, a column that contains another does so by chance, and nothing is taken apart.
    """
    whole = _rarest_independent(columns)
    if total is not None and np.array_equal(whole.sum(axis=0, dtype=np.int64), total):
        return whole
    return _rarest_independent(taken_apart(columns))


def belief(columns: NDArray[np.uint8], *, total: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """(n,) the probability that each of the `columns` is one client's whole column.

    A true column may have lost the ones of a rarer column that it contains, and then does not meet the rarer
    one. `total`, given for a complete set only, tells how often that happened: if it contains a column three
    times, two of the columns that do not meet it have lost it. The sums do not say which two. Without a total
    every column that does not meet some other is doubtful. If a column enters the total less than once, or
    not a whole number of times, at least one column is nobody's, and all are doubtful.
    """
    floats = columns.astype(np.float64)
    disjoint = floats @ floats.T == 0
    if total is None:
        return np.where(disjoint.any(axis=1), RAREST_CONFIDENCE, INDEPENDENT_CONFIDENCE)
    times = np.linalg.lstsq(floats.T, total.astype(np.float64), rcond=None)[0]
    lost = np.rint(times).clip(1) - 1
    share = (lost / disjoint.sum(axis=0).clip(1)).clip(0, 1)
    whole = np.prod(1 - share * disjoint, axis=1)
    fits = (np.abs(times - np.rint(times)) < WHOLE_TOLERANCE) & (np.rint(times) >= 1)
    confidence = INDEPENDENT_CONFIDENCE if fits.all() else RAREST_CONFIDENCE
    return np.asarray(confidence * whole * np.where(fits, 1, 0.5))


def _rarest_independent(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A basis of the span with as few ones as possible."""
    vectors = columns.astype(np.float64)
    tolerance = RANK_TOLERANCE * np.maximum(1.0, np.linalg.norm(vectors, axis=1))
    return columns[independent(vectors, shortest_first(columns), tolerance=tolerance)]

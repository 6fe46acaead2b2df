"""Columns of clients without a row of their own, from unions with clients whose columns are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.sparse.unions import union_of_parts

MOST_UNIONS = 400
"""Unions that are compared in pairs, those with the fewest rounds first."""


@dataclass(frozen=True, eq=False)
class Peeled:
    """Possible `columns` (n, rounds), the `client` (n,) whose exact counts each has, and its `support` (n,).

    The support is the number of unions that hold a column; `tried` is the number of bounds that were compared
    with the counts of each client.
    """

    columns: NDArray[np.bool_]
    client: NDArray[np.intp]
    support: NDArray[np.int64]
    tried: int

    @property
    def doubt(self) -> NDArray[np.float64]:
        """(n,) the odds that a column is nobody's: every bound that was tried could have had the counts.

        Each union that holds the column speaks for it.
        """
        return self.tried / np.maximum(self.support, 1)


def peeled(
    patterns: NDArray[np.bool_], known: NDArray[np.bool_], windows: Windows, left: NDArray[np.intp]
) -> Peeled:
    """Columns for the clients that are `left`, given the `known` columns (m, rounds) of others.

    A union that the known columns inside it do not cover holds somebody else. Its uncovered rounds are this
    client's, and all of the client's rounds are in it. Two unions with the same client narrow both bounds.
    Where the counts say that a window is filled, or has no more than the uncovered rounds, entries are
    settled; a column is returned if all are.
    """
    rest = patterns & ~union_of_parts(patterns, known, proper=False)
    open_ = np.flatnonzero(rest.any(axis=1))
    open_ = open_[np.argsort(patterns[open_].sum(axis=1), kind="stable")][:MOST_UNIONS]
    first, second = np.triu_indices(len(open_))
    above = patterns[open_[first]] & patterns[open_[second]]
    below = rest[open_[first]] | rest[open_[second]]
    consistent = ~(below & ~above).any(axis=1)
    above, below = above[consistent], below[consistent]
    columns, owners = [np.zeros((0, patterns.shape[1]), dtype=np.bool_)], [np.zeros(0, dtype=np.intp)]
    for client in left.tolist():
        settled = _settled(windows.of(np.array([client])), below, above)
        columns.append(np.unique(settled, axis=0))
        owners.append(np.full(len(columns[-1]), client, dtype=np.intp))
    found = np.concatenate(columns)
    support = (found.astype(np.float32) @ ~patterns[open_].T < 0.5).sum(axis=1) if len(found) else np.zeros(0)
    return Peeled(found, np.concatenate(owners), support.astype(np.int64), len(above))


def _settled(windows: Windows, below: NDArray[np.bool_], above: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The columns between the bounds (n, rounds) that one client's exact counts settle completely."""
    if np.isnan(windows.count).any() or (windows.sd > 0).any() or windows.overlapping:
        return above[:0]
    each = windows.of(np.zeros(len(above), dtype=np.intp))
    least, most = each.sums(below.astype(np.uint8)), each.sums(above.astype(np.uint8))
    full, bare = most == windows.count, least == windows.count
    good = (full | bare).all(axis=1)
    in_full = each.of(np.flatnonzero(good)).spread(full[good].astype(np.float64), fill=0.0) > 0.5
    settled: NDArray[np.bool_] = np.where(in_full, above[good], below[good])
    return settled

"""Under noise: the columns next to a column, to improve on it and to tell how sure it is.

A rival differs by one exchange of a 1 and a 0 inside a window with an exact count, or by one entry where
there is none. Its squared distance from the space is known without computing it anew.

Suppose that the residual of a right column, its part outside the space, is Gaussian with the same variance
s² in all directions. Then the odds of p against q are exp((‖residual q‖² − ‖residual p‖²) / 2s²). Near the
answer the rivals outweigh all other columns, so the weight of p among them is its probability.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.space.flips import flip_costs, unit_distances
from attacks.disaggregation.space.subspace import Subspace

MOST_EXCHANGES = 100
"""Exchanges that may improve one column; a column that needs more is no better than a random one."""


class Rivals:
    """The rivals of the clients' columns in a space."""

    def __init__(self, windows: Windows, subspace: Subspace) -> None:
        self.windows, self.U = windows, subspace.basis
        self.unit_distances = unit_distances(self.U)

    def polished(self, column: NDArray[np.uint8], client: int) -> NDArray[np.uint8]:
        """The column after exchanges, the best first, as long as they bring it nearer to the space."""
        column = column.copy()
        for _ in range(MOST_EXCHANGES):
            best, entries = 0.0, np.zeros(0, dtype=np.intp)
            for change, places in self._changes(column, client):
                if change.size and change.min() < best - 1e-9:
                    best = float(change.min())
                    entries = places[int(change.argmin())]
            if not len(entries):
                break
            column[entries] ^= 1
        return column

    def confidence(self, column: NDArray[np.uint8], client: int, variance: float) -> float:
        """The probability of the column among itself and its rivals; `variance` is s²."""
        weight = 0.0
        for change, _ in self._changes(column, client):
            weight += float(np.exp(np.minimum(-change / (2 * variance), 50)).sum())
        return 1 / (1 + weight)

    def _changes(
        self, column: NDArray[np.uint8], client: int
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.intp]]]:
        """Changes (m,) of the squared distance, and the entries (m, 1 or 2) that each of them inverts."""
        p = column.astype(np.float64)
        residual = p - self.U @ (self.U.T @ p)
        flip = flip_costs(p, residual, self.unit_distances)
        alone = np.ones(len(p), dtype=np.bool_)
        for row in self.windows.constraints(client):
            if row.sd > 0:
                continue
            span = np.arange(row.start, row.stop)
            alone[span] = False
            ones, zeros = span[column[span] == 1], span[column[span] == 0]
            change = flip[ones][:, None] + flip[zeros] + 2 * (self.U[ones] @ self.U[zeros].T)
            yield change.ravel(), np.stack(np.meshgrid(ones, zeros, indexing="ij"), axis=-1).reshape(-1, 2)
        places = np.flatnonzero(alone)
        yield flip[places], places[:, None]

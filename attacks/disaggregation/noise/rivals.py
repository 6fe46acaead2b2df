"""The neighbours of a column under noise: local search among them, and a posterior from them.

A rival of a column differs from it by one exchange of a 1 and a 0 inside a window with an exact count, or by
one entry outside such windows. The change of the squared distance from the space has a closed form.

Suppose that the residual of a right column, its part outside the space, is Gaussian with variance s² in every
direction. Then the odds of p against q are exp((‖residual q‖² − ‖residual p‖²) / 2s²). Near the right column
the rivals outweigh all other columns, so the weight of p among its rivals is its posterior probability.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.space.flips import flip_costs, unit_distances
from attacks.disaggregation.space.subspace import Subspace

MOST_EXCHANGES = 100
"""Most exchanges that improve one column; a column that needs more is no better than a random one."""


class Rivals:
    """The rivals of clients' columns, for the counts of `windows` and the basis U of `subspace`."""

    def __init__(self, windows: Windows, subspace: Subspace) -> None:
        self.windows, self.U = windows, subspace.basis
        self.unit_distances = unit_distances(self.U)

    def polished(self, column: NDArray[np.uint8], client: int) -> NDArray[np.uint8]:
        """The column after steepest descent: the best exchange is made while it reduces the distance."""
        column = column.copy()
        for _ in range(MOST_EXCHANGES):
            best, entries = 0.0, np.zeros(0, dtype=np.intp)
            for change, flipped in self._changes(column, client):
                if change.size and change.min() < best - 1e-9:
                    best = float(change.min())
                    entries = flipped[int(change.argmin())]
            if not len(entries):
                break
            column[entries] ^= 1
        return column

    def confidence(self, column: NDArray[np.uint8], client: int, variance: float) -> float:
        """The posterior probability of the column among itself and its rivals; `variance` is s²."""
        weight = 0.0
        for change, _ in self._changes(column, client):
            weight += float(np.exp(np.minimum(-change / (2 * variance), 50)).sum())
        return 1 / (1 + weight)

    def _changes(
        self, column: NDArray[np.uint8], client: int
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.intp]]]:
        """Changes (m,) of the squared distance, and the entries (m, 1 or 2) that each of them flips."""
        p = column.astype(np.float64)
        residual = p - self.U @ (self.U.T @ p)
        flip = flip_costs(p, residual, self.unit_distances)
        free = np.ones(len(p), dtype=np.bool_)
        for row in self.windows.constraints(client):
            if row.sd > 0:
                continue
            span = np.arange(row.start, row.stop)
            free[span] = False
            ones, zeros = span[column[span] == 1], span[column[span] == 0]
            change = flip[ones][:, None] + flip[zeros] + 2 * (self.U[ones] @ self.U[zeros].T)
            yield change.ravel(), np.stack(np.meshgrid(ones, zeros, indexing="ij"), axis=-1).reshape(-1, 2)
        entries = np.flatnonzero(free)
        yield flip[entries], entries[:, None]

"""The nearest 0/1 column with the right counts, for a batch of clients at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows

NOISY_COUNT_WEIGHT = 0.1
"""Weight of a noisy count against the distance, relative to 1/variance (the paper's soft constraint)."""
LEAST_COUNT_SD = 0.2
"""Least standard deviation that a noisy count is weighted with; below it rounding finds the count."""


class BinarySet:
    """0/1 columns with the counts of `windows`; a batch of points is (K, rounds), clients in rows.

    An exact count is met exactly: the largest entries of the window become 1. Without a count an entry
    becomes 1 above 1/2. A noisy count c̃ is weighed against the distance: the window gets the number s of
    ones that minimises Σ_{i≤s} (1 − 2 x_(i)) + μ (s − c̃)², where x_(i) are its entries in decreasing order.
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.known = ~np.isnan(windows.count)
        self.noisy = self.known & (windows.sd > 0)
        self.ones = np.where(self.known & ~self.noisy, windows.count, 0).astype(np.intp)

    def of(self, clients: NDArray[np.intp]) -> BinarySet:
        """The same for some of the clients."""
        return BinarySet(self.windows.of(clients))

    def nearest(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """The nearest member for each row of X."""
        inside = self.windows.inside(X, fill=-np.inf)
        inside.sort(axis=2)
        ones = self.ones
        if self.noisy.any():
            ones = ones.copy()
            ones[self.noisy] = self._best_counts(inside[self.noisy])
        longest = inside.shape[2]
        place = np.minimum(longest - ones, longest - 1)
        threshold = np.take_along_axis(inside, place[:, :, None], axis=2)[:, :, 0]
        threshold[ones == 0] = np.inf
        threshold[~self.known] = 0.5
        return np.greater_equal(X, self.windows.spread(threshold, fill=0.5)).astype(np.float32)

    def _best_counts(self, inside: NDArray[np.float32]) -> NDArray[np.intp]:
        """The number of ones for each noisy window; its entries in rising order are a row of `inside`."""
        windows, longest = self.windows, inside.shape[1]
        falling = inside[:, ::-1].astype(np.float64)
        cost = np.zeros((len(inside), longest + 1))
        np.cumsum(np.where(np.isfinite(falling), 1 - 2 * falling, np.inf), axis=1, out=cost[:, 1:])
        count, sd = windows.count[self.noisy][:, None], windows.sd[self.noisy][:, None]
        cost += (
            NOISY_COUNT_WEIGHT / np.maximum(sd, LEAST_COUNT_SD) ** 2 * (np.arange(longest + 1) - count) ** 2
        )
        return np.asarray(cost.argmin(axis=1))

"""The stretches of rounds that two clients may have exchanged, by their counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsim.core.compilation import compiled

LEAST_ODDS = -12.0
"""Log-odds by the counts alone below which a stretch is not considered."""
CONTRADICTION = 1e6
"""Log-odds against an error of one in an exact count. A window that contradicts its count already may come
closer to it."""


@compiled()
def stretches(
    one: int,
    two: int,
    at: NDArray[np.int64],
    change: NDArray[np.int64],
    window: NDArray[np.int64],
    tally: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Stretches (q, 2) of the m rounds `at` in which two clients differ, and their log-odds (q,) by counts.

    They are in order of their starts. `change` (m,) is that of the first client. `window` (n, R) numbers
    the window of each entry; windows are in order, so a stretch leaves a window for good. `tally` (n, W) are
    the ones in each window. `weight` (n, W, k) is the log-likelihood of what was published about a window,
    for any number of them. A stretch is a pair of positions: from the first to before the second.
    """
    m = len(at)
    found = np.empty((m * (m + 1) // 2, 2), np.int64)
    odds = np.empty(len(found))
    # Of each client: the log-odds of windows behind, and the change and log-odds of the present one.
    behind, ones, present = np.empty(2), np.empty(2, np.int64), np.empty(2)
    q = 0
    for i in range(m):
        behind[:], ones[:], present[:] = 0.0, 0, 0.0
        for j in range(i, m):
            for c in range(2):
                client = two if c else one
                w = window[client, at[j]]
                if j > i and w != window[client, at[j - 1]]:
                    behind[c] += present[c]
                    ones[c] = 0
                ones[c] += -change[j] if c else change[j]
                had = tally[client, w]
                present[c] = weight[client, w, had + ones[c]] - weight[client, w, had]
            if behind[0] + behind[1] < -CONTRADICTION / 2:
                break
            total = behind[0] + behind[1] + present[0] + present[1]
            if total > LEAST_ODDS:
                found[q, 0], found[q, 1], odds[q] = i, j + 1, total
                q += 1
    return found[:q], odds[:q]

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
    change: NDArray[np.int64],
    window: NDArray[np.intp],
    tally: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Stretches (q, 2) of the m rounds in which two clients differ, and their log-odds (q,) by the counts.

    `change` (m,) is that of the first client. `window` (2, m) numbers the window of each round; rounds and
    windows are in order, so a stretch leaves a window for good. `tally` (2, W) are the ones in each window.
    `weight` (2, W, n) is the log-likelihood of what was published about a window, for any number of them. A
    stretch is a pair of positions: from the first to before the second.
    """
    m = len(change)
    found = np.empty((m * (m + 1) // 2, 2), np.int64)
    odds = np.empty(len(found))
    q = 0
    for i in range(m):
        # Of each client: the log-odds of windows behind, and the change and log-odds of the present one.
        behind, ones, present = np.zeros(2), np.zeros(2, np.int64), np.zeros(2)
        for j in range(i, m):
            for c in range(2):
                w = window[c, j]
                if j > i and w != window[c, j - 1]:
                    behind[c] += present[c]
                    ones[c] = 0
                ones[c] += change[j] if c == 0 else -change[j]
                present[c] = weight[c, w, tally[c, w] + ones[c]] - weight[c, w, tally[c, w]]
            if behind.sum() < -CONTRADICTION / 2:
                break
            total = behind.sum() + present.sum()
            if total > LEAST_ODDS:
                found[q, 0], found[q, 1], odds[q] = i, j + 1, total
                q += 1
    return found[:q], odds[:q]


def compile_stretches() -> None:
    """Compile the loops, or load them from the disk, before anybody needs them."""
    none, nobody = np.zeros(0, dtype=np.int64), np.zeros((2, 0), dtype=np.intp)
    stretches(none, nobody, np.zeros((2, 1), dtype=np.int64), np.zeros((2, 1, 1)))

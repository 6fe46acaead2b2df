"""The stretches of rounds that two clients may have exchanged, by their counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsim.core.compilation import compiled

LEAST_ODDS = -12.0
"""Log-odds by the counts alone below which a stretch is not considered."""
CONTRADICTION = 1e6
"""Log-odds against an error of one in an exact count."""


@compiled()
def _odds(tally: float, change: float, count: float, sd: float) -> float:
    """Change of the log-likelihood of a count if its window has other ones."""
    if np.isnan(count) or change == 0:
        return 0.0
    if sd == 0:
        # A window that contradicts its count already may come closer to it.
        return -CONTRADICTION * (abs(tally + change - count) - abs(tally - count))
    return float(0.5 * (((tally - count) / sd) ** 2 - ((tally + change - count) / sd) ** 2))


@compiled()
def stretches(
    change: NDArray[np.float64],
    window: NDArray[np.intp],
    tally: NDArray[np.float64],
    count: NDArray[np.float64],
    sd: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Stretches (q, 2) of the m rounds in which two clients differ, and their log-odds (q,) by the counts.

    `change` (m,) is that of the first client. `window` (2, m) numbers the window of each round; rounds and
    windows are in order, so a stretch leaves a window for good. `tally`, `count` and `sd` (2, W): the ones in
    each window, their published number, NaN where there is none, and its error. A stretch is a pair of
    positions: from the first to before the second.
    """
    m = len(change)
    found = np.empty((m * (m + 1) // 2, 2), np.int64)
    odds = np.empty(len(found))
    q = 0
    for i in range(m):
        # Of each client: the log-odds of windows behind, and the change and log-odds of the present one.
        behind, ones, present = np.zeros(2), np.zeros(2), np.zeros(2)
        for j in range(i, m):
            for c in range(2):
                w = window[c, j]
                if j > i and w != window[c, j - 1]:
                    behind[c] += present[c]
                    ones[c] = 0.0
                ones[c] += change[j] if c == 0 else -change[j]
                present[c] = _odds(tally[c, w], ones[c], count[c, w], sd[c, w])
            if behind.sum() < -CONTRADICTION / 2:
                break
            total = behind.sum() + present.sum()
            if total > LEAST_ODDS:
                found[q, 0], found[q, 1], odds[q] = i, j + 1, total
                q += 1
    return found[:q], odds[:q]


def compile_stretches() -> None:
    """Compile the loops, or load them from the disk, before anybody needs them."""
    none, nobody = np.zeros(0), np.zeros((2, 1))
    stretches(none, np.zeros((2, 0), dtype=np.intp), nobody, nobody, nobody)

"""The binomial distribution, without scipy.stats: importing that takes half a second."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlog1py, xlogy


def log_binomial(ones: ArrayLike, trials: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """Log-probability of a number of ones; −∞ if there are more ones than trials."""
    k, n, p = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (ones, trials, chance)))
    possible = k <= n
    rest = np.where(possible, n - k, 0.0)
    ways = gammaln(n + 1) - (gammaln(k + 1) + gammaln(rest + 1))
    return np.where(possible, ways + xlogy(k, p) + xlog1py(rest, -p), -np.inf)

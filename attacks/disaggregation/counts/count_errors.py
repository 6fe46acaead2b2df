"""How likely a published count is, for every number of rounds in which its client took part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows


def log_likelihood(
    off: NDArray[np.float64], sd: NDArray[np.float64], laplace: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Of counts that are `off` by this much, up to a constant; `sd` > 0 is the deviation of their errors.

    Differentially private counts have discrete Laplace noise: an error of x is e^(−ε|x|) times as likely as
    none, and the variance is 1/(cosh ε − 1). All other errors are taken for normal ones.
    """
    return np.where(laplace, -np.arccosh(1 + 1 / sd**2) * np.abs(off), -0.5 * (off / sd) ** 2)


def count_weights(
    windows: Windows, *, most: int, least_sd: float = 0.0, contradiction: float = np.inf
) -> NDArray[np.float64]:
    """(K, W, most + 1) log-likelihood of each count if the client took part 0 … `most` times in its window.

    It is 0 without a count. Errors get a standard deviation of at least `least_sd`. An exact count costs
    `contradiction` for every participation that it is off by.
    """
    count, sd = windows.count[:, :, None], np.maximum(windows.sd, least_sd)[:, :, None]
    known = ~np.isnan(count)
    off = np.arange(most + 1, dtype=np.float64) - np.where(known, count, 0)
    exact = np.where(off == 0, 0.0, -contradiction * np.maximum(np.abs(off), 1))
    noisy = log_likelihood(off, np.where(sd > 0, sd, 1), windows.laplace[:, :, None])
    return np.where(known, np.where(sd > 0, noisy, exact), 0.0)


def padded_weights(
    windows: Windows, *, least_sd: float = 0.0, contradiction: float = np.inf
) -> NDArray[np.float64]:
    """(K, W + 1, n) the same for any number of ones that a window can hold.

    The last window stands for the rounds outside of all, about which nothing was published.
    """
    W, longest = windows.index.shape[1:]
    most = windows.rounds if (windows.window_of_round == W).any() else longest
    weights = count_weights(windows, most=most, least_sd=least_sd, contradiction=contradiction)
    return np.pad(weights, ((0, 0), (0, 1), (0, 0)))

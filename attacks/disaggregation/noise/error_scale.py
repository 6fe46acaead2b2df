"""How much estimates of participation vary in truth, compared with the variance that their model states.

Entries whose count is zero are known to be zero. They are a free sample of the estimates' errors, and need no
assumption on how updates or noise are distributed. Entries that are only *believed* to be zero are no
substitute: these beliefs select small errors.

While a model trains, ones vary more than zeros: a client that takes part also brings what its update does not
share with its other updates, such as its own way to turn with the model. No zero shows that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_KNOWN_ZEROS = 8
"""Known zeros from which a client's or a round's own error is estimated; with fewer, all of them are used."""
NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
BISECTIONS = 20
"""Steps of a bisection over a factor of a hundred, which resolve a median far beyond its own error."""
LEAST_ERROR = 1e-3
"""Least median error, in stated standard deviations: a client that never took part has none at all."""


def enough_zeros(known_zero: NDArray[np.bool_]) -> bool:
    """Whether there are enough known zeros (rounds, clients) for `variance_from_zeros`."""
    return bool(known_zero.sum() >= LEAST_KNOWN_ZEROS * known_zero.shape[1])


def variance_from_zeros(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rounds, clients) true over stated variance: a factor for every client times one for every round.

    `errors` (rounds, clients) are absolute values of estimates in stated standard deviations, NaN where the
    entry is not known to be zero. Medians resist the few entries that another client's wrong column spoils.
    """
    everywhere = float(np.nanmedian(errors))
    by_client = np.maximum(_median_or(errors, axis=0, otherwise=everywhere), LEAST_ERROR)
    by_round = _median_or(errors / by_client, axis=1, otherwise=1.0)
    return np.asarray((NORMAL_MAD * by_round[:, None] * by_client) ** 2)


def variance_of_ones(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(clients,) variance of estimates of ones over that of zeros, at least 1; 1 for a client with few ones.

    `errors` (rounds, clients) are distances from 1 in standard deviations of a zero, NaN where the entry is
    not believed to be one.
    """
    median = _median_or(errors, axis=0, otherwise=0.0)
    return np.asarray(np.maximum(NORMAL_MAD * median, 1.0) ** 2)


def log_odds_of_one(
    estimate: NDArray[np.float64], zero: NDArray[np.float64], ratio: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(rounds, clients) log-likelihood ratio of a one to a zero, with variances `zero` × `ratio` and `zero`.

    A wide distribution of the ones would win again far below zero. Estimates there count like the one that
    speaks most against a one.
    """
    spread = ratio - 1
    turn = np.divide(-1, spread, out=np.full(spread.shape, -np.inf), where=spread > 0)
    e = np.maximum(estimate, turn)
    return np.asarray(0.5 * ((e**2 - (e - 1) ** 2 / ratio) / zero - np.log(ratio)))


def deviation_of_mixture(
    errors: NDArray[np.float64], one: NDArray[np.float64], rate: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n,) standard deviation of estimates around 0 and, for a share `rate` (n,) of them, around ±`one` (n,).

    `errors` (R, n) are the absolute values of the estimates. The result is the deviation that explains their
    median.
    """
    from scipy.special import ndtr

    median = np.maximum(np.median(errors, axis=0), LEAST_ERROR)
    low, high = np.log(0.1 * median), np.log(10 * median)
    for _ in range(BISECTIONS):
        sd = np.exp((low + high) / 2)
        below = (1 - rate) * (2 * ndtr(median / sd) - 1)
        below += rate * (ndtr((median - one) / sd) - ndtr((-median - one) / sd))
        low, high = (
            np.where(below > 0.5, (low + high) / 2, low),
            np.where(below > 0.5, high, (low + high) / 2),
        )
    return np.asarray(np.exp((low + high) / 2))


def _median_or(values: NDArray[np.float64], *, axis: int, otherwise: float) -> NDArray[np.float64]:
    """Medians along an axis without NaN; `otherwise` where there are too few values."""
    enough = (~np.isnan(values)).sum(axis=axis) >= LEAST_KNOWN_ZEROS
    medians = np.full(enough.shape, otherwise)
    if enough.any():
        medians[enough] = np.nanmedian(np.compress(enough, values, axis=1 - axis), axis=axis)
    return medians

"""Correction of nearly right columns under noise by a matched filter, with log odds for every entry.

If most of P is right, least squares gives every client's update up to noise. A matched filter then estimates
one entry of P: it correlates the round's aggregate, less the contribution of all other clients, with the
client's update. Three corrections make it accurate.

- The updates contain the noise of the round that they are applied to. A leave-one-out correction (a rank-one
  change of the least-squares solution) removes it.
- Noise in the estimated updates inflates their inner products by a known matrix, which is subtracted.
- Busy rounds have more noise. Each round has its own noise level, from its residual.

Only the Gram matrix of the aggregates is needed, so the cost does not depend on their dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from attacks.disaggregation.noise.error_scale import NORMAL_MAD
from attacks.disaggregation.space.flips import flip_costs, unit_distances

JOINT_STEPS = 2
"""Iterations that solve for all entries of a round jointly. Later ones trust the other entries, with less
noise."""
NOISE_FLOOR = 1e-9
"""Least noise relative to a round's energy, to avoid a division by zero without noise."""
TEMPERATURE = 0.55
"""Factor of the log odds, which treat the errors as Gaussian and independent. Calibrated on problems in which
many columns are wrong: of the columns with confidence 0.9, about nine in ten were right."""
LEAST_RELATIVE_NOISE = 0.2
"""Least noise of a round, relative to the median round."""
LOG_ODDS_BOUND = 40.0
"""Bound of the log odds of an entry."""
LEAST_DEVIATION = 0.02
"""Least standard deviation of an estimated entry."""
ENTRY_TOLERANCE = 1e-3
"""Largest change of an entry at which the iteration has converged."""
LARGEST_LEVERAGE = 0.95
"""Bound of a round's leverage, above which its leave-one-out correction would blow up."""
LEAST_EIGENVALUE = 0.05
"""Least eigenvalue of the updates' inner products after the correction, relative to the median one."""
RIDGE_SCALE = 1e-9
"""Ridge of the normal equations, relative to their mean diagonal entry."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """`columns` (rounds, K) uint8, and the `log_odds` (rounds, K) of a one against a zero."""

    columns: NDArray[np.uint8]
    log_odds: NDArray[np.float64]

    @property
    def confidence(self) -> NDArray[np.float64]:
        """(K,) the probability that all entries of a column are right."""
        agreeing = np.where(self.columns == 1, self.log_odds, -self.log_odds)
        return np.asarray(np.exp(np.log(expit(agreeing)).sum(axis=0)))


def decode(K: NDArray[np.float64], columns: NDArray[np.uint8], *, max_iterations: int = 40) -> Decoded:
    """Improve `columns` (rounds, K), given the Gram matrix K (rounds, rounds) of the aggregates."""
    if not columns.size:
        return Decoded(columns, np.zeros(columns.shape))
    P = columns.astype(np.float64)
    rate = P.mean(axis=0).clip(0.5 / len(P), 1 - 0.5 / len(P))
    noise = _mean_noise(K, P)
    log_odds = np.zeros(P.shape)
    for iteration in range(max_iterations):
        x, residual = _matched_filter(K, P, noise, jointly=iteration < JOINT_STEPS)
        noise = np.sqrt(noise * residual)
        # An empty round has no noise. With an infinite weight, a wrong entry in it would never change.
        noise = np.maximum(noise, LEAST_RELATIVE_NOISE * np.median(noise))
        scale = np.sqrt(noise / np.median(noise))[:, None]
        x -= scale * np.median(x / scale, axis=0)  # most entries are zeros
        deviation = scale * np.maximum(NORMAL_MAD * np.median(np.abs(x / scale), axis=0), LEAST_DEVIATION)
        log_odds = ((x - 0.5) / deviation**2 + np.log(rate / (1 - rate))).clip(
            -LOG_ODDS_BOUND, LOG_ODDS_BOUND
        )
        before, P = P, (P + expit(log_odds)) / 2
        if np.abs(P - before).max() < ENTRY_TOLERANCE:
            break
    return Decoded((log_odds > 0).astype(np.uint8), TEMPERATURE * log_odds)


def from_distances(columns: NDArray[np.uint8], basis: NDArray[np.float64]) -> Decoded:
    """The rows of `columns` (K, rounds) unchanged, with log odds from their distance to the space.

    If the distance is noise, its variance per dimension outside the space is the same for all columns. The
    log odds of an entry are the change of the squared distance when it is flipped, in units of twice that
    variance. A few of the columns are enough for this, while `decode` needs nearly all.
    """
    P = columns.astype(np.float64)
    rest = P - (P @ basis) @ basis.T
    variance = np.einsum("kr,kr->k", rest, rest) / max(len(basis) - basis.shape[1], 1)
    variance = np.maximum(variance, np.median(variance) if len(P) else 0.0).clip(NOISE_FLOOR)
    change = flip_costs(P, rest, unit_distances(basis))
    odds = (change / (2 * variance[:, None])).clip(-LOG_ODDS_BOUND, LOG_ODDS_BOUND)
    return Decoded(columns.T, ((2 * P - 1) * odds).T)


def _matched_filter(
    K: NDArray[np.float64], P: NDArray[np.float64], noise: NDArray[np.float64], *, jointly: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(rounds, K) estimates of the entries of P, and (rounds,) each round's squared residual."""
    energy = np.diag(K)
    weighted = P / noise[:, None]
    precision = weighted.T @ P + np.diag((weighted * (1 - P)).sum(axis=0))
    precision += RIDGE_SCALE * np.trace(precision) / len(precision) * np.eye(len(precision))
    covariance = np.linalg.inv(precision)
    W = covariance @ weighted.T  # the updates are W A
    correlation = W @ K  # their inner products with the aggregates
    inner = correlation @ W.T  # and with each other
    leverage = np.einsum("rk,kr->r", P, W).clip(0, LARGEST_LEVERAGE)
    explained = np.einsum("rk,kr->r", P, correlation)
    residual = energy - 2 * explained + np.einsum("rk,rk->r", P @ inner, P)
    others = correlation - W * ((energy - explained) / (1 - leverage))  # leave-one-out
    values, vectors = np.linalg.eigh(inner - covariance)
    inner = (vectors * np.maximum(values, LEAST_EIGENVALUE * np.median(values))) @ vectors.T
    if jointly:
        x = np.linalg.solve(inner, others).T
    else:
        x = P + ((others - inner @ P.T) / np.diag(inner)[:, None]).T
    return x, np.maximum(residual / (1 - leverage), NOISE_FLOOR * energy.mean())


def _mean_noise(K: NDArray[np.float64], P: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rounds,) the mean energy of a round outside the span of the columns, the same for every round."""
    Q = np.linalg.qr(P)[0]
    left = np.trace(K) - np.einsum("rk,rk->", K @ Q, Q)
    return np.full(len(K), max(left / max(len(K) - Q.shape[1], 1), NOISE_FLOOR * np.trace(K) / len(K)))

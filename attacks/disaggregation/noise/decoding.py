"""From nearly right columns to right ones under noise, with a probability for every entry.

With most of P right, least squares gives every client's update up to noise, and what a round's sum says
about one entry of P is a matched filter: the sum, less what all other clients added, against the client's
update. Three things make this exact where plain thresholding is not.

- A round's own noise is in the updates that were estimated with its help. It is taken out of them before
  they are used on that round (a rank-one change of the least-squares solution).
- The estimated updates carry noise, which inflates their inner products by a known matrix; it is subtracted.
- Rounds are not equally noisy: busy rounds hold more noise. Each has its own level, from its residual.

Only the Gram matrix of the aggregates is needed, so the work does not depend on their dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from attacks.disaggregation.space.flips import flip_costs, unit_distances

LEAST_SQUARES_STEPS = 2
"""Steps that solve for a round's entries together; later ones trust the others' and are less noisy."""
LEAST_NOISE = 1e-9
"""Relative to a round's energy; keeps sums without noise from dividing by zero."""
TEMPER = 0.55
"""Factor of the log odds. They treat the entries' errors as Gaussian and independent, which they are not;
with this factor, of the columns given .9 about nine in ten were right (measured where many are wrong)."""
QUIETEST = 0.2
"""Least noise of a round, relative to the middle one."""
SURE = 40.0
"""Bound of a log odds: nothing is surer than this."""
LEAST_SPREAD = 0.02
"""No entry is known better than this, however quiet the zeros are."""
SETTLED = 1e-3


@dataclass(frozen=True, eq=False)
class Decoded:
    """`columns` (rounds, K) uint8, and the `log_odds` (rounds, K) of a one against a zero."""

    columns: NDArray[np.uint8]
    log_odds: NDArray[np.float64]

    @property
    def confidence(self) -> NDArray[np.float64]:
        """(K,) the probability that all of a column's entries are right."""
        agreeing = np.where(self.columns == 1, self.log_odds, -self.log_odds)
        return np.asarray(np.exp(np.log(expit(agreeing)).sum(axis=0)))


def decode(K: NDArray[np.float64], columns: NDArray[np.uint8], *, max_iterations: int = 40) -> Decoded:
    """Improve `columns` (rounds, K), given the Gram matrix K (rounds, rounds) of the aggregates."""
    P = columns.astype(np.float64)
    rate = P.mean(axis=0).clip(0.5 / len(P), 1 - 0.5 / len(P))
    noise = _mean_noise(K, P)
    log_odds = np.zeros(P.shape)
    for iteration in range(max_iterations):
        x, residual = _matched_filter(K, P, noise, together=iteration < LEAST_SQUARES_STEPS)
        noise = np.sqrt(noise * residual)
        # An empty round has no noise at all; with a weight to match, one wrong entry in it would stay.
        noise = np.maximum(noise, QUIETEST * np.median(noise))
        scale = np.sqrt(noise / np.median(noise))[:, None]
        x -= scale * np.median(x / scale, axis=0)  # most entries are zeros
        spread = scale * np.maximum(1.4826 * np.median(np.abs(x / scale), axis=0), LEAST_SPREAD)
        log_odds = ((x - 0.5) / spread**2 + np.log(rate / (1 - rate))).clip(-SURE, SURE)
        before, P = P, (P + expit(log_odds)) / 2
        if np.abs(P - before).max() < SETTLED:
            break
    return Decoded((log_odds > 0).astype(np.uint8), TEMPER * log_odds)


def near_columns(columns: NDArray[np.uint8], basis: NDArray[np.float64]) -> Decoded:
    """The rows of `columns` (K, rounds) as they are, with log odds from their distance to the space.

    If the distance is noise, its variance per dimension outside the space is the same for all columns; an
    entry's odds are what changing it would add to the distance, in units of that variance. Needs no more
    than a few of the columns, where `decode` needs nearly all.
    """
    P = columns.astype(np.float64)
    rest = P - (P @ basis) @ basis.T
    variance = np.einsum("kr,kr->k", rest, rest) / max(len(basis) - basis.shape[1], 1)
    variance = np.maximum(variance, np.median(variance) if len(P) else 0.0).clip(LEAST_NOISE)
    change = flip_costs(P, rest, unit_distances(basis))
    odds = (change / (2 * variance[:, None])).clip(-SURE, SURE)
    return Decoded(columns.T, ((2 * P - 1) * odds).T)


def _matched_filter(
    K: NDArray[np.float64], P: NDArray[np.float64], noise: NDArray[np.float64], *, together: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(rounds, K) estimates of the entries of P, and (rounds,) each round's squared residual."""
    energy = np.diag(K)
    weighted = P / noise[:, None]
    precision = weighted.T @ P + np.diag((weighted * (1 - P)).sum(axis=0))
    precision += 1e-9 * np.trace(precision) / len(precision) * np.eye(len(precision))
    covariance = np.linalg.inv(precision)
    W = covariance @ weighted.T  # the updates are W A
    seen = W @ K  # their inner products with the sums
    inner = seen @ W.T  # and with each other
    leverage = np.einsum("rk,kr->r", P, W).clip(0, 0.95)
    explained = np.einsum("rk,kr->r", P, seen)
    residual = energy - 2 * explained + np.einsum("rk,rk->r", P @ inner, P)
    others = seen - W * ((energy - explained) / (1 - leverage))  # without the round's own noise
    values, vectors = np.linalg.eigh(inner - covariance)
    inner = (vectors * np.maximum(values, 0.05 * np.median(values))) @ vectors.T
    if together:
        x = np.linalg.solve(inner, others).T
    else:
        x = P + ((others - inner @ P.T) / np.diag(inner)[:, None]).T
    return x, np.maximum(residual / (1 - leverage), LEAST_NOISE * energy.mean())


def _mean_noise(K: NDArray[np.float64], P: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rounds,) the noise per round, the same for all: what the columns leave of the sums."""
    Q = np.linalg.qr(P)[0]
    left = np.trace(K) - np.einsum("rk,rk->", K @ Q, Q)
    return np.full(len(K), max(left / max(len(K) - Q.shape[1], 1), LEAST_NOISE * np.trace(K) / len(K)))

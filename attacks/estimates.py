"""An estimate of every client's update, also of clients whose column is not certain.

Least squares needs columns that are right. With expected participation X instead, the sums are

    A = m μᵀ + X D + noise,

with the cohort sizes m, the mean update μ, and deviations D that are as likely in every direction. The
posterior mean of D (ridge regression) is small where X says little about a client, and close to least squares
where X is a column that fits. The noise takes its likeliest value, given all sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.mapped_memory import small_slices
from fedsim.records import Transcript

NOISE = np.logspace(-8, 4, 61)
"""Candidates for the noise, relative to the mean eigenvalue of X Xᵀ."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """How to compute the estimates: `weights` (K, rounds) of the sums, and `error` (K,) of each estimate.

    The error is the posterior standard deviation of an entry of an update, root mean square over entries.
    """

    transcript: Transcript
    weights: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, transcript: Transcript, expected: NDArray[np.float64]) -> Estimates:
        """The estimates with `expected` participation X (rounds, K)."""
        sizes = transcript.cohort_sizes.astype(np.float64)
        mean = sizes / max(float(sizes @ sizes), 1.0)
        values, vectors = np.linalg.eigh(expected @ expected.T)
        values = np.maximum(values, 0)
        left = np.zeros(len(values))
        for part in small_slices(transcript.aggregates):
            rest = np.outer(sizes, mean @ part)
            np.subtract(part, rest, out=rest)
            rotated = vectors.T @ rest
            left += np.square(rotated, out=rotated).sum(axis=1)
        spread = values + max(float(values.mean()), 1e-12) * NOISE[:, None]
        energy = (left / spread).mean(axis=1)
        misfit = np.log(spread).mean(axis=1) + np.log(np.maximum(energy, np.finfo(np.float64).tiny))
        best = int(np.argmin(misfit))
        gain = expected.T @ (vectors / spread[best]) @ vectors.T
        open_ = np.clip(1 - np.einsum("kr,rk->k", gain, expected), 0, 1)
        error = np.sqrt(energy[best] * open_ / transcript.aggregates.shape[1])
        # μ is taken out of the sums first, and added to every client.
        return cls(transcript, gain - np.outer(gain @ sizes, mean) + mean, error)

    def parts(self) -> Iterator[NDArray[np.float32]]:
        """(K, entries) the estimates, some entries of all updates at a time and in order."""
        for part in small_slices(self.transcript.aggregates):
            yield np.asarray(self.weights @ part, dtype=np.float32)

"""Planted problems with a table of word vectors: clients move the rows of their own words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem
from attacks.reconciliation import posed_problem


@dataclass(frozen=True)
class PlantedWords:
    """A problem, and behind it `participation` (rounds, clients) and `typed` (clients, words)."""

    problem: DisaggregationProblem
    participation: NDArray[np.bool_]
    typed: NDArray[np.bool_]


def planted_words(
    seed,
    *,
    clients=30,
    rounds=40,
    words=400,
    rate=0.15,
    window=5,
    width=3,
    drift=0.5,
    lost=0.0,
    noise=0.0,
    known=1.0,
):
    """Sums whose rows move for the authors alone, by vectors that drift; a share of the counted is `lost`."""
    rng = np.random.default_rng(seed)
    counted = rng.random((rounds, clients)) < rate
    P = counted & (rng.random(counted.shape) >= lost)
    chance = np.minimum(0.6, 2.0 / np.arange(1, words + 1))[rng.permutation(words)]
    typed = rng.random((clients, words)) < chance
    vectors = rng.normal(size=(clients, words, width)) * typed[:, :, None]
    dense = rng.normal(size=(clients, 6))
    sums = np.empty((rounds, words * width + 6), dtype=np.float32)
    for r in range(rounds):
        now = vectors + drift * rng.normal(size=vectors.shape) * typed[:, :, None]
        sums[r, : words * width] = now[P[r]].sum(axis=0).ravel()
        sums[r, words * width :] = dense[P[r]].sum(axis=0)
    sums += (noise * rng.normal(size=sums.shape)).astype(np.float32)
    counts = counted.reshape(rounds // window, window, clients).sum(axis=1).T.astype(np.float64)
    counts[rng.random(counts.shape) >= known] = np.nan
    starts = np.tile(np.arange(0, rounds, window), clients)
    report = ParticipationReport(
        np.arange(clients),
        np.repeat(np.arange(clients), rounds // window),
        starts,
        starts + window,
        counts.ravel(),
    )
    problem = posed_problem(sums, report, cohort_sizes=P.sum(axis=1), layer_shapes=((words, width), (2, 3)))
    return PlantedWords(problem, P, typed)

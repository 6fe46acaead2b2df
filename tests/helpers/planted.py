"""Problems whose answer is known: hand-sized ones from the project's own generator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import DisaggregationProblem
from scenarios.planted import Planted as Settings


@dataclass(frozen=True)
class Planted:
    problem: DisaggregationProblem
    participation: NDArray[np.uint8]
    updates: NDArray[np.float32]


def planted(
    seed: int,
    *,
    clients: int = 8,
    rounds: int = 32,
    rate: float = 0.2,
    window: int = 4,
    dim: int | None = None,
    noise_sd: float = 0.0,
    count_sd: float = 0.0,
    known: float = 1.0,
    participation: NDArray[np.uint8] | None = None,
) -> Planted:
    """Few clients, and hardly more entries than clients; the attacker does not know the cohort sizes."""
    if participation is not None:
        rounds, clients = participation.shape
    settings = Settings(
        seed=seed,
        clients=clients,
        rounds=rounds,
        rate=rate,
        window=window,
        dim=dim or clients + 4,
        noise_sd=noise_sd,
        counts_sd=count_sd,
        known=known,
    )
    truth, transcript, counts = settings.plant(participation)
    return Planted(
        DisaggregationProblem(transcript.aggregates, counts), truth.participation, np.asarray(truth.updates)
    )


def right(participation: NDArray[np.uint8], truth: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(K,) columns that are exactly right."""
    return np.asarray((participation == truth).all(axis=0))


def with_sizes(case: Planted) -> DisaggregationProblem:
    """The problem of a server that knows how many clients each sum holds, without which nothing is proved."""
    return replace(case.problem, cohort_sizes=case.participation.sum(axis=1, dtype=np.int64))

"""Problems whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport, windowed_counts
from attacks.disaggregation import DisaggregationProblem


@dataclass(frozen=True)
class Planted:
    problem: DisaggregationProblem
    participation: NDArray[np.uint8]
    updates: NDArray[np.float64]


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
    """Gaussian updates, Bernoulli participation, and counts of which a fraction `known` is reported."""
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < rate).astype(np.uint8) if participation is None else participation
    rounds, clients = P.shape
    G = rng.standard_normal((clients, dim or clients + 4))
    A = P @ G + noise_sd * rng.standard_normal((rounds, G.shape[1]))
    return Planted(
        DisaggregationProblem(A, blurred(windowed_counts(P, window), rng, known=known, sd=count_sd)), P, G
    )


def blurred(
    report: ParticipationReport, rng: np.random.Generator, *, known: float = 1.0, sd: float = 0.0
) -> ParticipationReport:
    count = report.count + sd * rng.standard_normal(len(report.count))
    count[rng.random(len(count)) >= known] = np.nan
    return replace(report, count=count, noise_sd=sd)


def right(participation: NDArray[np.uint8], truth: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(K,) columns that are exactly right."""
    return np.asarray((participation == truth).all(axis=0))

"""Problems in which updates wander from round to round."""

import numpy as np

from analytics import windowed_counts
from attacks.disaggregation import DisaggregationProblem


def drifting(seed, *, drift, noise_sd, clients=24, rounds=96, dim=3000, window=8):
    """Updates that wander: each round's resemble the last one's, as those of a model in training."""
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < 0.12).astype(np.uint8)
    keep = np.exp(-drift / rounds)
    G = rng.standard_normal((clients, dim))
    A = np.empty((rounds, dim))
    for r in range(rounds):
        A[r] = P[r] @ G + noise_sd * np.sqrt(P[r].sum()) * rng.standard_normal(dim)
        G = keep * G + np.sqrt(1 - keep**2) * rng.standard_normal(G.shape)
    return DisaggregationProblem(A, windowed_counts(P, window), cohort_sizes=P.sum(axis=1)), P

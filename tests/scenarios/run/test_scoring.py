"""Scores: what they count, and what not."""

import numpy as np

from attacks.disaggregation import DisaggregationProblem, disaggregate
from scenarios.planted import Planted
from scenarios.run.scoring import score_disaggregation


def test_whose_update_is_not_known_is_not_singled_out():
    """With so few participations a guess is often right, but a client that stays unresolved has no update."""
    truth, transcript, counts = Planted(clients=32, rounds=36, rate=0.05, seed=1).plant()
    problem = DisaggregationProblem(transcript.aggregates, counts)
    recovery = disaggregate(problem, rng=np.random.default_rng(0))
    exact = (recovery.participation == truth.participation).all(axis=0)
    _, group, size = np.unique(truth.participation, axis=1, return_inverse=True, return_counts=True)
    alone = (size[group.ravel()] == 1) & (truth.participation.sum(axis=0) > 0)
    known = np.isfinite(recovery.updates).all(axis=1)
    assert (exact & alone & ~known).any()

    found = score_disaggregation(recovery, truth, transcript, counts, made_beside_truth=True)
    assert found.singled_out_fraction == (exact & alone & known).mean()
    assert found.baselines.oracle_singled_out_fraction == alone.mean()

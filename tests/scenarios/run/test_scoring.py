"""Scores: what they count, and what not."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation import DisaggregationProblem, disaggregate
from scenarios.planted import Planted
from scenarios.run.scoring import score_disaggregation
from scenarios.run.sections import LikelyColumns


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


@pytest.mark.parametrize(
    ("columns", "expected", "right", "too_high"),
    [
        (21, 18.0, 4, True),
        (40, 39.9, 35, True),
        (40, 39.9, 40, False),
        (20, 10.0, 8, False),
        (0, 0.0, 0, False),
    ],
)
def test_a_confidence_that_was_not_deserved_is_named(columns, expected, right, too_high):
    likely = LikelyColumns(columns=columns, expected=expected, right=right)
    assert likely.overconfident == too_high
    assert bool(likely.warning()) == too_high


def test_likely_columns_are_counted_with_what_was_promised():
    truth, transcript, counts = Planted(clients=12, rounds=60, rate=0.2, dim=64, noise_sd=0.3, seed=1).plant()
    recovery = disaggregate(
        DisaggregationProblem(transcript.aggregates, counts), rng=np.random.default_rng(0)
    )
    assert (recovery.outcome == "likely").all()
    wrong = recovery.participation.copy()
    wrong[:, :6] = 1 - wrong[:, :6]
    scores = [
        score_disaggregation(each, truth, transcript, counts, made_beside_truth=True).likely
        for each in (recovery, replace(recovery, participation=wrong))
    ]
    assert [score.columns for score in scores] == [12, 12]
    assert [score.right for score in scores] == [12, 6]
    assert scores[0].expected == recovery.confidence.sum()
    assert [score.overconfident for score in scores] == [False, True]

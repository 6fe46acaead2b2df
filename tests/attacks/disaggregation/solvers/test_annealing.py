"""Annealing: it finds columns where the counts say too little for message passing to start from."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation import disaggregate
from attacks.disaggregation.recovery import Outcome
from tests.helpers.drifting import drifting
from tests.helpers.planted import right


@pytest.fixture(scope="module")
def rarely_counted():
    """Counts over a quarter of the rounds, while updates drift by two correlation lengths."""
    return drifting(7, drift=2.0, noise_sd=0.4, clients=12, dim=1500, window=24)


@pytest.mark.parametrize("solver", ["annealing", "auto"])
def test_finds_columns_with_rare_counts(rarely_counted, solver):
    problem, P = rarely_counted
    recovery = disaggregate(problem, solver, rng=np.random.default_rng(0))
    assert recovery.solver == "annealing"
    assert right(recovery.participation, P).all()
    assert (recovery.confidence > 0.5).all()


def test_message_passing_does_not(rarely_counted):
    problem, P = rarely_counted
    recovery = disaggregate(problem, "message_passing", rng=np.random.default_rng(0))
    assert right(recovery.participation, P).mean() < 0.6


def test_replicas_that_differ_lower_the_confidence():
    problem, P = drifting(7, drift=2.0, noise_sd=4.0, clients=12, rounds=48, dim=200, window=24)
    recovery = disaggregate(problem, "annealing", rng=np.random.default_rng(0))
    sure = recovery.confidence > 0.9
    assert not (sure & ~right(recovery.participation, P)).any()
    assert recovery.confidence.mean() < 0.5


def test_columns_of_a_moving_model_are_found_without_counts():
    """The number of clients is not given either; a search that takes drift for noise finds nothing."""
    problem, P = drifting(8, drift=1.0, noise_sd=0.2)
    problem = replace(problem, counts=None, num_clients=None)
    recovery = disaggregate(problem, "blind", rng=np.random.default_rng(0))
    likely = recovery.participation[:, recovery.outcome == Outcome.LIKELY]
    truth = {column.tobytes() for column in np.ascontiguousarray(P.T.astype(np.uint8))}
    found = {column.tobytes() for column in np.ascontiguousarray(likely.T)}
    assert len(found & truth) >= 0.9 * P.shape[1]
    assert len(found - truth) <= 1

"""Columns that are the only ones to fit, without noise."""

import numpy as np

from attacks.disaggregation.instance import Instance
from attacks.reconciliation import posed_problem
from scenarios.planted import Planted
from scenarios.run.ceiling.uniqueness import unique_fraction


def shown(**settings):
    planted = Planted(seed=3, **settings)
    truth, transcript, counts = planted.plant()
    problem = posed_problem(
        transcript.aggregates, counts, num_clients=planted.clients, cohort_sizes=transcript.cohort_sizes
    )
    instance = Instance.prepare(problem, rng=np.random.default_rng(0))
    return unique_fraction(instance, truth.participation, np.zeros(planted.clients, dtype=np.bool_))


def test_many_rounds_leave_one_column_and_few_leave_several():
    assert shown(clients=24, rounds=40, rate=0.3, window=8) == 1
    assert 0 < shown(clients=24, rounds=26, rate=0.3, window=8) < 1


def test_nothing_is_claimed_where_nothing_is_shown():
    assert shown(clients=24, rounds=20, rate=0.3, window=8) is None
    assert shown(clients=24, rounds=40, rate=0.3, window=8, noise_sd=1.0) is None
    assert shown(clients=24, rounds=40, rate=0.3, window=8, counts_sd=1.0) is None

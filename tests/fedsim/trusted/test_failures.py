"""Devices that fail: what becomes of the sum, the counts and the truth."""

import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.flower import COHORT_SIZE, WEIGHT, record_vector, vector_record
from fedsim.grids.inline import InlineGrid
from fedsim.server.strategy import server_strategy
from fedsim.server.wrapper import StrategyWrapper
from fedsim.trusted.aggregation import TrustedAggregation
from fedsim.trusted.diary import read_diaries
from fedsim.trusted.failures import Failure, Failures
from fedsim.trusted.summation import Ideal
from fedsim.trusted.truth import TruthRecorder
from scenarios.run.scenario import load_scenario
from tests.helpers.fleet import Fleet

UPDATES = [np.array([1, 10**k, k], dtype=np.float32) for k in range(4)]
PLAN = {(0, 0): Failure.ABSENT, (1, 0): Failure.INTERRUPTED, (2, 0): Failure.LOST, (2, 1): Failure.LOST}


class Tap(StrategyWrapper):
    def __init__(self, inner):
        super().__init__(inner)
        self.sums, self.metrics = [], []

    def aggregate_train(self, server_round, replies):
        (reply,) = replies
        self.sums.append(record_vector(reply))
        self.metrics.append(reply.content["metrics"])
        return self.inner.aggregate_train(server_round, [reply])


@pytest.fixture
def failed_run():
    """Three rounds with everybody invited and `PLAN` going wrong."""
    fleet = Fleet(UPDATES, plan=PLAN)
    return fleet, *run(fleet.grid)


def run(grid):
    tap, recorder = Tap(server_strategy("fixed")), TruthRecorder(3, 4, 3)
    trusted = TrustedAggregation(
        tap, schedule=np.ones((3, 4), dtype=bool), aggregation=Ideal(), truth=recorder
    )
    trusted.start(grid, vector_record(np.zeros(3, dtype=np.float32)), num_rounds=3)
    return tap, recorder.truth(read_diaries(grid))


def test_the_sum_holds_those_who_delivered(failed_run):
    _, tap, _ = failed_run
    np.testing.assert_array_equal(
        tap.sums, [UPDATES[3], UPDATES[0] + UPDATES[1] + UPDATES[3], np.sum(UPDATES, axis=0)]
    )
    assert [m[COHORT_SIZE] for m in tap.metrics] == [1, 3, 4]
    assert [m[WEIGHT] for m in tap.metrics] == [8, 5 + 6 + 8, 26]


def test_the_truth_is_what_the_sums_hold_and_the_counts_are_what_devices_trained(failed_run):
    fleet, _, truth = failed_run
    np.testing.assert_array_equal(truth.participation, [[0, 0, 0, 1], [1, 1, 0, 1], [1, 1, 1, 1]])
    np.testing.assert_array_equal(truth.updates, UPDATES)
    assert fleet.counts() == [2, 2, 3, 3]


def test_devices_may_be_lent_the_memory_of_their_updates_until_the_next_round():
    """The inline engine's trainer does that: what it prepares for a round overwrites the round before."""
    sent = np.random.default_rng(0).integers(0, 100, (3, 4, 3)).astype(np.float32)
    lent = np.empty((4, 3), dtype=np.float32)
    grid = InlineGrid(
        Fleet(lent, plan=PLAN).app, 4, prepare=lambda _, round_index, __: np.copyto(lent, sent[round_index])
    )
    tap, truth = run(grid)
    lent[:] = np.nan
    joined = truth.participation[:, :, None]
    np.testing.assert_array_equal(tap.sums, (joined * sent).sum(axis=1))
    np.testing.assert_allclose(truth.updates, (joined * sent).sum(axis=0) / joined.sum(axis=0), rtol=1e-6)
    kept = [vector for state in grid.states.values() for vector in state.array_records.values()]
    assert not any(np.isnan(record["parameters"].numpy()).any() for record in kept)


def test_a_round_in_which_everybody_fails_is_empty():
    fleet = Fleet(UPDATES, plan={(k, 0): Failure.LOST for k in range(4)})
    summed, _ = fleet.sum()
    assert summed.members == ()
    assert summed.weight == 0
    assert not summed.total.any()


def test_failures_are_drawn_at_their_rates_and_by_address():
    failures = Failures(absent=0.1, interrupted=0.2, lost=0.3)
    draws = [failures.draw(1, client, r) for client in range(40) for r in range(100)]
    for failure, rate in (
        (Failure.ABSENT, 0.1),
        (Failure.INTERRUPTED, 0.2),
        (Failure.LOST, 0.3),
        (None, 0.4),
    ):
        assert draws.count(failure) / len(draws) == pytest.approx(rate, abs=0.03)
    assert draws[105] == failures.draw(1, 1, 5)
    assert Failures().draw(1, 2, 3) is None
    assert Failures().device_mods(seed=1) == []


def test_rates_that_exceed_certainty_are_refused(scenario_file):
    with pytest.raises(UserError, match=r"clients\.failures is .*: expected rates that add up to at most 1"):
        load_scenario(scenario_file, ["clients.failures={ absent = 0.6, lost = 0.6 }"])

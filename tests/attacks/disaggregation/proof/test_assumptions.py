"""Where the assumptions of a proof fail, or cannot be checked, there is no proof."""

from dataclasses import replace

import numpy as np
import pytest

from analytics import windowed_counts
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.proof import assumptions, verdict
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Projection
from tests.helpers.adversarial import FAMILIES, SOLVERS, adversarial, problems
from tests.helpers.planted import planted, right, with_sizes


def outcomes(number, first_seed, solver):
    """How many columns of adversarial problems are proved, and how many of these falsely."""
    proved = false = 0
    for i, case in enumerate(problems(number, first_seed)):
        recovery = disaggregate(case.problem, solver, rng=np.random.default_rng(i))
        sure = recovery.outcome == Outcome.PROVED
        proved += int(sure.sum())
        false += int((sure & ~right(recovery.participation, case.participation)).sum())
    return proved, false


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_proof_is_false_though_assumptions_fail(solver):
    proved, false = outcomes(len(FAMILIES), list(SOLVERS).index(solver), SOLVERS[solver])
    assert false == 0
    assert proved > 5


def test_without_confirmation_the_same_problems_have_false_proofs(monkeypatch):
    monkeypatch.setattr(verdict, "withdraw_unconfirmed", lambda *_: None)
    _, false = outcomes(len(FAMILIES), 0, SOLVERS["projection"])
    assert false > 5


def namesakes():
    """Two worlds with the same sums and the same counts: client 0's update counts, or a hidden client's.

    In the second world client 0 sends zeros, and a hidden client with the same counts takes its place.
    """
    case = planted(1, clients=4, rounds=16, rate=0.3)
    P = case.participation.copy()
    P[:4, 0] = [1, 0, 0, 0]
    A, counts = P @ case.updates, windowed_counts(P, 4)
    other = P.copy()
    other[:4, 0] = [0, 0, 0, 1]
    sizes = P.sum(axis=1, dtype=np.int64)
    hidden_sizes = sizes + other[:, 0]
    return DisaggregationProblem(A, counts), sizes, hidden_sizes


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_only_cohort_sizes_tell_a_client_from_a_hidden_namesake(solver):
    problem, sizes, hidden_sizes = namesakes()

    def attacked(cohort_sizes):
        seen = replace(problem, cohort_sizes=cohort_sizes)
        return disaggregate(seen, solver, rng=np.random.default_rng(0))

    assert (attacked(sizes).outcome == Outcome.PROVED).all()
    for recovery, reason in (
        (attacked(None), assumptions.NO_SIZES),
        (attacked(hidden_sizes), assumptions.WRONG_COUNTS),
    ):
        assert Outcome.PROVED not in recovery.outcome
        assert reason in set(recovery.reason)


def test_a_full_count_proves_nothing_if_an_update_may_be_lost():
    """Client 0 trained in all rounds, by its counts; the sums may lack one of its updates."""
    P = planted(2, clients=4, rounds=16, rate=0.4).participation.copy()
    P[:, 0] = 1
    case = planted(2, participation=P)
    lost = with_sizes(case)
    lost = replace(lost, cohort_sizes=lost.cohort_sizes - np.eye(16, dtype=np.int64)[5])
    for problem, outcome in (
        (with_sizes(case), Outcome.PROVED),
        (case.problem, Outcome.CONSISTENT),
        (lost, Outcome.CONSISTENT),
    ):
        assert disaggregate(problem, Projection(), rng=np.random.default_rng(0)).outcome[0] == outcome


def test_two_clients_with_one_proved_column_are_both_in_doubt():
    """Client 0 sends zeros, client 1 has the same counts, and a hidden client fills the rank."""
    P = planted(3, clients=5, rounds=20, rate=0.4).participation.copy()
    P[:, 0] = P[:, 1]
    updates = np.random.default_rng(3).standard_normal((6, 12))
    updates[0] = 0
    hidden = (np.random.default_rng(4).random(20) < 0.4).astype(np.uint8)
    A = np.column_stack((P, hidden)) @ updates
    recovery = disaggregate(
        DisaggregationProblem(A, windowed_counts(P, 4)), Projection(), rng=np.random.default_rng(0)
    )
    assert (recovery.outcome[:2] == Outcome.CONSISTENT).all()
    assert (recovery.confidence[:2] <= 0.5).all()
    assert "always together, or only one's" in recovery.reason[0]


def test_a_witness_is_one_column_per_client_that_add_up_and_are_independent():
    a, b, c = np.eye(3, dtype=np.uint8)

    def has_witness(*arguments):
        return assumptions._witness(*arguments) is not None

    assert has_witness(np.stack((a, b)), [], np.array([1, 1, 0]), 2)
    assert not has_witness(np.stack((a, a)), [], np.array([2, 0, 0]), 2), "dependent"
    assert not has_witness(np.stack((a, b)), [], np.array([1, 1, 0]), 3), "the space holds more"
    either = np.stack((b, c))
    assert has_witness(a[None], [either, either], np.ones(3, dtype=np.int64), 3)
    assert not has_witness(a[None], [either, either], np.array([1, 2, 0]), 3), "twice the same column"
    assert not has_witness(a[None], [either, b[None]], np.array([2, 1, 0]), 3), "they do not add up"


def test_adversarial_problems_are_the_same_every_time():
    first, second = (adversarial(("zero", "outlier"), 5).problem for _ in range(2))
    assert np.array_equal(first.aggregates, second.aggregates)


def test_what_the_columns_leave_of_the_sums_must_be_rounding():
    """One sum is wrong by so little that the spectrum takes it for noise."""
    case = planted(4, clients=4, rounds=16, rate=0.4)
    problem = with_sizes(case)
    disturbed = problem.aggregates.copy()
    disturbed[0] *= 1 + 1e-4
    for aggregates, reason in ((problem.aggregates, ""), (disturbed, assumptions.UNEXPLAINED)):
        attacked = replace(problem, aggregates=aggregates)
        recovery = disaggregate(attacked, Projection(), rng=np.random.default_rng(0))
        assert set(recovery.reason) == {reason}
        assert (Outcome.PROVED in recovery.outcome) == (not reason)


def test_a_round_that_nothing_else_explains_could_be_disturbed():
    """Client 0 took part once: whatever that sum holds beside the others' updates is taken for its update."""
    P = planted(5, clients=4, rounds=24, rate=0.4).participation.copy()
    for ones, reason in (((2, 9), ""), ((2,), assumptions.UNNOTICED)):
        P[:, 0] = 0
        P[list(ones), 0] = 1
        problem = with_sizes(planted(5, participation=P))
        recovery = disaggregate(problem, Projection(), rng=np.random.default_rng(0))
        assert set(recovery.reason) == {reason}
        assert right(recovery.participation, P).all()


def test_a_constant_in_every_sum_is_noticed_if_cohorts_differ_in_size():
    span = np.ones((4, 1)) / 2
    assert assumptions._would_notice(span, np.array([2, 2, 2, 2]))
    assert not assumptions._would_notice(span, np.array([2, 1, 2, 2]))

"""Lists of all columns that a client can have, and the choice among them."""

from itertools import product

import numpy as np
import pytest

from analytics.report import windowed_counts
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.columns.enumeration import MOST_ENUMERATED, Enumeration
from attacks.disaggregation.counts.cohort_size_posterior import possible, posterior
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Projection
from scenarios.planted import blurred
from tests.helpers.planted import planted, right, with_sizes


def listing(problem):
    return Enumeration(Instance.prepare(problem, rng=np.random.default_rng(0)))


@pytest.mark.parametrize("seed", range(12))
def test_a_list_holds_every_column_that_meets_the_constraints(seed):
    rng = np.random.default_rng([seed, 2])
    clients, window = int(rng.integers(4, 9)), int(rng.integers(2, 7))
    case = planted(seed, clients=clients, rounds=clients + 3, rate=0.3, window=window)
    every = np.array(list(product((0, 1), repeat=clients + 3)), dtype=np.uint8)
    Q = np.linalg.svd(case.participation.astype(float))[0]
    outside = Q[:, np.linalg.matrix_rank(case.participation) :]
    inside = every[np.abs(every @ outside).max(axis=1, initial=0) < 1e-6]
    for client in range(clients):
        met = case.problem.windows.of(np.full(len(inside), client)).meet(inside)
        listed = listing(case.problem).columns(client)
        assert sorted(map(bytes, listed)) == sorted(map(bytes, inside[met]))


def test_no_list_without_counts_for_all_rounds():
    case = planted(0)
    report = blurred(windowed_counts(case.participation, 4), np.random.default_rng(0), known=0.5)
    lists = listing(DisaggregationProblem(case.problem.aggregates, report))
    assert all(lists.columns(client) is None for client in range(8))


def test_a_list_that_would_be_too_long_is_cut_and_never_a_proof():
    """One update with one entry: nearly every round is free."""
    P = np.zeros((20, 1), dtype=np.uint8)
    P[::2] = 1
    case = planted(0, participation=np.hstack((P, 1 - P, np.eye(20, 16, dtype=np.uint8))), window=20)
    assert len(listing(case.problem).columns(0)) == MOST_ENUMERATED
    recovery = disaggregate(case.problem, Projection(max_iterations=50), rng=np.random.default_rng(0))
    assert recovery.outcome[0] == Outcome.UNRESOLVED
    assert "columns meet every constraint" in recovery.reason[0]


@pytest.mark.parametrize("sizes", [False, True])
def test_with_few_rounds_and_ones_confidence_is_honest(sizes):
    """Several columns meet the constraints of most clients; a solver falls upon any of them."""
    confidence, correct, outcome = [], [], []
    for seed in range(2):
        case = planted(seed, clients=32, rounds=40, rate=0.1, window=10)
        problem = with_sizes(case) if sizes else case.problem
        recovery = disaggregate(problem, Projection(max_iterations=1000), rng=np.random.default_rng(seed))
        confidence.append(recovery.confidence)
        correct.append(right(recovery.participation, case.participation))
        outcome.append(recovery.outcome)
    sure, true, outcomes = np.concatenate(confidence), np.concatenate(correct), np.concatenate(outcome)
    assert true[outcomes == Outcome.PROVED].all()
    assert true[sure > 0.9].mean() > 0.95
    assert true.sum() > 0.9 * sure.sum()
    assert (outcomes[sure < 0.5] == Outcome.UNRESOLVED).all()


def test_lists_find_what_the_search_does_not():
    case = planted(1, clients=40, rounds=46, rate=0.12, window=6)
    problem = with_sizes(case)
    recovery = disaggregate(problem, Projection(max_iterations=1), rng=np.random.default_rng(0))
    unaided = disaggregate(problem, Projection(max_iterations=1, prove=False), rng=np.random.default_rng(0))
    assert (unaided.outcome == Outcome.UNRESOLVED).sum() > 35
    sure = recovery.confidence >= 0.99
    assert sure.sum() > 20
    assert right(recovery.participation, case.participation)[sure].all()


def test_what_cohort_sizes_rule_out_is_struck_off():
    a, b = np.eye(3, dtype=np.uint8)[:2]
    shorter = possible([a[None], np.stack((a, b))], np.array([1, 1, 0]))
    assert [columns.tolist() for columns in shorter] == [[a.tolist()], [b.tolist()]]
    assert possible([a[None], a[None]], np.array([1, 1, 0])) is None


def test_columns_that_make_up_for_each_other_stay_alike():
    """Two clients can have exchanged their columns: nothing tells, however many rounds say so."""
    a, b = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=np.uint8)
    both = np.stack((a, b))
    for weight in posterior([both, both], a + b.astype(np.int64), np.zeros((0, 6))):
        assert np.allclose(weight, 0.5)


def test_sizes_speak_for_the_columns_that_add_up():
    """Where the first client's ones would be missing without it; somebody unknown may make up for them."""
    a, b = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.uint8)
    (weight,) = posterior([np.stack((a, b))], np.array([1, 1, 0, 0]), np.full((1, 4), 0.1))
    assert weight[0] > 0.9


@pytest.mark.parametrize("block", range(3))
def test_what_is_proved_with_cohort_sizes_is_right(block):
    proved = 0
    for seed in range(20 * block, 20 * block + 20):
        rng = np.random.default_rng([seed, 3])
        clients = int(rng.integers(3, 9))
        rounds = clients + int(rng.integers(1, 4))
        case = planted(seed, clients=clients, rounds=rounds, rate=0.3, window=int(rng.integers(2, 6)))
        recovery = disaggregate(
            with_sizes(case), Projection(max_iterations=100), rng=np.random.default_rng(seed)
        )
        sure = recovery.outcome == Outcome.PROVED
        assert right(recovery.participation, case.participation)[sure].all(), seed
        proved += sure.sum()
    assert proved > 5

"""From candidate columns to outcomes: nothing is believed that was not checked."""

import numpy as np
import pytest

from attacks.disaggregation import UNKNOWN, DisaggregationProblem
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.verdict import Candidates, excludes, expected_residual, judge, resolved
from attacks.disaggregation.recovery import Outcome
from tests.helpers.planted import planted, with_sizes


def prepared(problem):
    return Instance.prepare(problem, rng=np.random.default_rng(0))


def candidates(instance, columns):
    """Some rows of columns, as a solver would offer them."""
    found = Candidates.none(instance)
    clients = np.arange(instance.num_columns)
    found.offer(clients, columns, instance.subspace.residual(columns))
    return found


def test_candidates_keep_the_nearest_column_of_each_client():
    instance = prepared(planted(0, clients=3, rounds=8).problem)
    found = Candidates.none(instance)
    columns = np.eye(4, 8, dtype=np.uint8)
    assert found.offer(np.array([1, 1, 2]), columns[:3], np.array([0.5, 0.2, 0.9]))
    assert not found.offer(np.array([1]), columns[3:], np.array([0.3])), "farther than the one it has"
    np.testing.assert_array_equal(found.columns[1:], columns[1:3])
    np.testing.assert_array_equal(found.distance, [np.inf, 0.2, 0.9])
    assert (found.columns[0] == UNKNOWN).all()


def test_a_column_resolves_a_client_if_it_lies_in_the_space_and_is_not_zero():
    case = planted(1)
    instance, columns = prepared(case.problem), case.participation.T.copy()
    columns[0] = 0
    columns[1, 0] ^= 1
    found = candidates(instance, columns)
    found.columns[2] = UNKNOWN
    assert resolved(instance, found).tolist() == [False] * 3 + [True] * 5


def test_a_bound_excludes_other_columns_only_beyond_the_precision_of_the_space():
    instance = prepared(planted(2).problem)
    assert excludes(instance, np.inf) and excludes(instance, 0.5)
    assert not excludes(instance, 0.0) and not excludes(instance, 1e-4)


def test_the_yardstick_under_noise_is_the_mean_over_random_columns():
    instance = prepared(planted(3, clients=4, rounds=16, noise_sd=0.5, dim=40).problem)
    rng, client = np.random.default_rng(0), 1
    random = (rng.random((20_000, 16)) < instance.expected[client]).astype(np.uint8)
    mean = instance.subspace.residual(random).mean()
    assert expected_residual(instance)[client] == pytest.approx(mean, rel=0.02)


def test_true_columns_are_stood_by_and_spoilt_ones_are_not():
    """An exchange inside a window keeps the counts and leaves the space."""
    case = planted(4, rounds=64)
    instance, columns = prepared(case.problem), case.participation.T.copy()
    window = slice(0, 4)
    client = int(
        np.flatnonzero((columns[:, window].sum(axis=1) > 0) & (columns[:, window].sum(axis=1) < 4))[0]
    )
    columns[client, window] = np.roll(columns[client, window], 1)
    assert (columns[client] != case.participation[:, client]).any()
    verdict = judge(instance, candidates(instance, columns), solver="test", prove=False)
    others = np.arange(8) != client
    assert (verdict.outcome[others] != Outcome.UNRESOLVED).all()
    assert verdict.outcome[client] == Outcome.UNRESOLVED
    assert verdict.reason[client] != ""


def test_a_column_without_the_clients_counts_is_not_its_column():
    case = planted(5)
    columns = case.participation.T.copy()
    columns[[0, 1]] = columns[[1, 0]]
    instance = prepared(case.problem)
    assert not instance.windows.of(np.array([0])).meet(columns[:1]).any()
    verdict = judge(instance, candidates(instance, columns), solver="test", prove=False)
    assert (verdict.outcome[:2] == Outcome.UNRESOLVED).all()


def test_counts_that_fix_a_column_overrule_the_solver():
    P = planted(6).participation.copy()
    P[:, 3] = 0
    instance = prepared(planted(6, participation=P).problem)
    columns = P.T.copy()
    columns[3] = 1
    verdict = judge(instance, candidates(instance, columns), solver="test", prove=False)
    assert verdict.outcome[3] == Outcome.PROVED
    assert not verdict.participation[:, 3].any()


def test_a_solvers_own_proof_counts_only_in_a_space_that_holds_every_column():
    """Two clients are always together: the rank is one short, and others' columns may be missing too."""
    P = planted(6).participation.copy()
    for together, outcome in ((False, Outcome.PROVED), (True, Outcome.CONSISTENT)):
        if together:
            P[:, 5] = P[:, 2]
        instance = prepared(with_sizes(planted(6, participation=P)))
        found = candidates(instance, P.T.copy())
        found.proved[:] = True
        verdict = judge(instance, found, solver="test", prove=False)
        assert set(verdict.outcome[~instance.determined]) == {outcome}


def test_under_noise_a_belief_decides():
    case = planted(8, rounds=48, dim=200, noise_sd=0.3)
    instance = prepared(case.problem)
    belief = np.linspace(0.1, 0.95, 8)
    verdict = judge(instance, candidates(instance, case.participation.T.copy()), solver="test", belief=belief)
    likely = belief >= 0.5
    assert (verdict.outcome[likely] == Outcome.LIKELY).all()
    assert (verdict.outcome[~likely] == Outcome.UNRESOLVED).all()
    np.testing.assert_array_equal(verdict.confidence, belief)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (lambda case: DisaggregationProblem(0 * case.problem.aggregates, case.problem.counts), "are zero"),
        (lambda _: planted(9, clients=12, rounds=10).problem, "rank too low"),
        (lambda _: planted(9, dim=2).problem, "updates of 2 entries cannot tell 8 clients apart"),
        (lambda case: case.problem, "no column near the aggregates' space"),
    ],
)
def test_every_failure_has_its_reason(problem, reason):
    instance = prepared(problem(planted(9)))
    verdict = judge(instance, Candidates.none(instance), solver="test", prove=False)
    unresolved = verdict.outcome == Outcome.UNRESOLVED
    assert unresolved.any()
    assert all(reason in text for text in verdict.reason[unresolved])

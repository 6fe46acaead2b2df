"""What every solver achieves on planted problems with counts."""

import numpy as np
import pytest

from attacks.disaggregation import UNKNOWN, DisaggregationProblem, ProblemError, disaggregate
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import MessagePassing, Solver
from fedsim.core.settings import members
from tests.helpers.planted import planted, right, with_sizes

SOLVERS = [member() for member in members(Solver).values()]
UPDATE_TOLERANCE = {"exact": 1e-4, "noisy": 0.3}
"""Largest error of an update's entry: the single precision of a recovery; a few standard errors."""

every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
every_solver_of_dense_sums = pytest.mark.parametrize(
    "solver", [solver for solver in SOLVERS if not solver.needs_zero_rows], ids=lambda solver: solver.name
)
"""No row of the planted sums is zero."""


def needs_exact_sums(solver):
    if isinstance(solver, MessagePassing):
        pytest.skip("message passing averages over many entries of an update; these have a dozen")


def solve(problem, solver, seed=0):
    return disaggregate(problem, solver, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(3))
@every_solver_of_dense_sums
def test_recovers_columns_and_updates_without_noise(solver, seed):
    needs_exact_sums(solver)
    case = planted(seed)
    recovery = solve(case.problem, solver)
    assert right(recovery.participation, case.participation).all()
    assert set(recovery.outcome) <= {Outcome.PROVED, Outcome.CONSISTENT}
    assert np.abs(recovery.updates - case.updates).max() < UPDATE_TOLERANCE["exact"]
    assert recovery.participation.dtype == np.uint8
    assert recovery.updates.dtype == np.float32


@every_solver_of_dense_sums
def test_recovers_under_mild_noise_and_does_not_call_it_proved(solver):
    case = planted(4, rounds=48, dim=400, noise_sd=0.05)
    recovery = solve(case.problem, solver)
    assert right(recovery.participation, case.participation).all()
    assert set(recovery.outcome) == {Outcome.LIKELY}
    assert np.abs(recovery.updates - case.updates).max() < UPDATE_TOLERANCE["noisy"]
    assert (recovery.confidence > 0.5).all()


@every_solver_of_dense_sums
def test_missing_counts(solver):
    case = planted(5, rounds=48, known=0.7)
    recovery = solve(case.problem, solver)
    resolved = recovery.outcome != Outcome.UNRESOLVED
    assert right(recovery.participation, case.participation)[resolved].mean() > 0.7


@every_solver_of_dense_sums
def test_noisy_counts(solver):
    needs_exact_sums(solver)
    case = planted(6, rounds=48, count_sd=0.3)
    recovery = solve(case.problem, solver)
    assert right(recovery.participation, case.participation).all()
    assert Outcome.PROVED not in recovery.outcome


@every_solver_of_dense_sums
def test_fewer_rounds_than_clients_is_unresolved_with_the_reason(solver):
    case = planted(7, clients=12, rounds=10, rate=0.5)
    recovery = solve(case.problem, solver)
    assert (recovery.outcome == Outcome.UNRESOLVED).all()
    assert all("rank too low" in reason for reason in recovery.reason)
    assert (recovery.participation == UNKNOWN).all()
    assert np.isnan(recovery.updates).all()


@every_solver_of_dense_sums
def test_an_idle_client_is_proved_by_its_counts(solver):
    P = planted(8).participation.copy()
    P[:, 3] = 0
    recovery = solve(planted(8, participation=P, dim=400).problem, solver)
    assert right(recovery.participation, P).all()
    assert recovery.outcome[3] == Outcome.PROVED


@every_solver_of_dense_sums
def test_clients_that_are_always_together_are_a_group(solver):
    needs_exact_sums(solver)
    P = planted(9).participation.copy()
    P[:, 5] = P[:, 2]
    case = planted(9, participation=P)
    recovery = solve(case.problem, solver)
    assert right(recovery.participation, P).all()
    assert (recovery.outcome[[2, 5]] == Outcome.CONSISTENT).all()
    assert all("always together: clients 2, 5" in recovery.reason[k] for k in (2, 5))
    assert np.isnan(recovery.update_error[[2, 5]]).all()
    together = recovery.updates[2] + recovery.updates[5]
    assert np.abs(together - case.updates[2] - case.updates[5]).max() < UPDATE_TOLERANCE["exact"]


@every_solver
def test_the_same_seed_gives_the_same_recovery(solver):
    case = planted(10, known=0.8)
    first, second = solve(case.problem, solver), solve(case.problem, solver)
    assert np.array_equal(first.participation, second.participation)
    assert np.array_equal(first.outcome, second.outcome)
    assert np.array_equal(first.updates, second.updates, equal_nan=True)


@every_solver
def test_reports_progress_within_bounds(solver):
    calls = []
    case = planted(11)
    disaggregate(
        case.problem,
        solver,
        rng=np.random.default_rng(0),
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls
    assert all(0 <= done <= total for done, total in calls)


@every_solver
def test_all_zero_aggregates_are_unresolved(solver):
    case = planted(12)
    problem = DisaggregationProblem(np.zeros_like(case.problem.aggregates), case.problem.counts)
    recovery = solve(problem, solver)
    assert (recovery.outcome == Outcome.UNRESOLVED).all()
    assert (recovery.participation == UNKNOWN).all()


@every_solver
def test_one_round(solver):
    P = np.array([[1, 0, 1]], dtype=np.uint8)
    recovery = solve(with_sizes(planted(13, participation=P, window=1)), solver)
    assert np.array_equal(recovery.participation, P)
    assert (recovery.outcome == Outcome.PROVED).all()


@every_solver
def test_a_solver_is_chosen_by_its_name(solver):
    case = planted(14)
    by_name = disaggregate(case.problem, solver.name, rng=np.random.default_rng(0))
    assert np.array_equal(by_name.participation, solve(case.problem, solver).participation)
    with pytest.raises(ProblemError, match="solver"):
        disaggregate(case.problem, solver.name + "x", rng=np.random.default_rng(0))

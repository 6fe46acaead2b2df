"""No false proof where the assumptions hold: against the truth and against every binary column there is."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from attacks.disaggregation import disaggregate
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Gurobi, Highs, Projection
from tests.helpers.planted import planted, right, with_sizes


def mixed_problem(seed):
    """Any shape: few or many rounds, all or some counts, duplicates, idle and constant columns."""
    rng = np.random.default_rng([seed, 1])
    clients, rounds = int(rng.integers(2, 8)), int(rng.integers(4, 14))
    P = (rng.random((rounds, clients)) < rng.choice([0.1, 0.3, 0.5, 0.8])).astype(np.uint8)
    if rng.random() < 0.3:
        P[:, 0] = P[:, 1]
    if rng.random() < 0.1:
        P[:, -1] = rng.integers(2)
    return planted(
        seed,
        participation=P,
        window=int(rng.integers(1, rounds + 1)),
        known=float(rng.choice([1, 1, 0.7, 0.3])),
        count_sd=float(rng.choice([0, 0, 0, 0.3])),
        dim=int(rng.choice([clients + 2, clients + 2, clients + 2, 2])),
    )


@cache
def every_column(rounds):
    """(2**rounds, rounds) all binary columns."""
    return np.array(list(product((0, 1), repeat=rounds)), dtype=np.uint8)


def alternatives(problem, participation, client, left):
    """How many binary columns lie in the space of the true P and have the client's exact counts.

    They have ones only where the other proved columns leave room in the cohorts.
    """
    every = every_column(problem.rounds)
    fits = problem.windows.of(np.full(len(every), client)).meet(every) & (every <= left).all(axis=1)
    values, vectors = np.linalg.eigh(participation.astype(float) @ participation.T)
    U = vectors[:, values > 1e-9]
    outside = every[fits] - every[fits] @ U @ U.T
    return int((np.abs(outside).max(axis=1) < 1e-6).sum())


def check(seed, solver):
    case = mixed_problem(seed)
    problem = with_sizes(case)
    if np.isnan(problem.counts.count).all():
        return 0  # These solvers refuse a problem without a single count.
    recovery = disaggregate(problem, solver, rng=np.random.default_rng(seed))
    proved = np.flatnonzero(recovery.outcome == Outcome.PROVED)
    assert right(recovery.participation, case.participation)[proved].all(), seed
    for client in proved:
        left = problem.cohort_sizes - case.participation[:, np.setdiff1d(proved, client)].sum(axis=1)
        assert alternatives(problem, case.participation, client, left) == 1, (seed, client)
    return len(proved)


@pytest.mark.parametrize(
    "solver", [Projection(max_iterations=300), Highs(), Gurobi()], ids=lambda solver: solver.name
)
def test_what_is_proved_is_right_and_has_no_alternative(solver):
    proved = sum(check(seed, solver) for seed in range(60))
    assert proved > 40


@pytest.mark.slow
@pytest.mark.parametrize("first", [1000, 3500, 6000, 8500])
def test_ten_thousand_problems_without_a_false_proof(first):
    proved = sum(check(seed, Projection(max_iterations=100)) for seed in range(first, first + 2500))
    assert proved > 1_250


def test_a_certificate_is_found_where_the_counts_leave_one_column():
    """Windows of one round fix everything; windows of four leave the columns of a wide space unique."""
    for window in (1, 4):
        case = planted(3, rounds=64, window=window)
        recovery = disaggregate(with_sizes(case), Projection(), rng=np.random.default_rng(0))
        assert (recovery.outcome == Outcome.PROVED).all()


def test_too_large_for_the_licence_is_a_reason_not_a_crash():
    case = planted(0, clients=20, rounds=220, rate=0.1, window=10)
    recovery = disaggregate(case.problem, Gurobi(form="quadratic"), rng=np.random.default_rng(0))
    if (recovery.outcome != Outcome.UNRESOLVED).all():
        pytest.skip("a full Gurobi licence is present")
    assert set(recovery.reason) == {"the problem is too large for Gurobi's size-limited licence"}

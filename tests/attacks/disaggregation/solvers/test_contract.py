"""The contract of a solver: every member of the union keeps what it declares, and misuse is refused."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import pytest
from pydantic import ValidationError

from attacks.disaggregation import UNKNOWN, DisaggregationProblem, ProblemError, disaggregate
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.recovery import Columns, Outcome
from attacks.disaggregation.solvers import AbstractSolver, Solver, unmet_need
from fedsim.core.settings import members
from tests.helpers.planted import planted, with_sizes

MEMBERS = members(Solver)
DECLARED = ("needs_counts", "needs_zero_rows", "models_noise", "can_prove")
WITHOUT_COUNTS = [name for name, member in MEMBERS.items() if not member.needs_counts]
ASSUMES_NO_NOISE = "this solver assumes sums without noise"

every_solver = pytest.mark.parametrize("solver", [member() for member in MEMBERS.values()], ids=list(MEMBERS))


def solve(problem, solver, seed=0):
    return disaggregate(problem, solver, rng=np.random.default_rng(seed))


def without_counts(case, kind):
    """The problem with no report, with none but a number of clients, or with a report of unknown counts."""
    problem = case.problem
    if kind == "all missing":
        unknown = np.full_like(problem.counts.count, np.nan)
        return replace(problem, counts=replace(problem.counts, count=unknown))
    clients = case.participation.shape[1] if kind == "number of clients" else None
    return DisaggregationProblem(problem.aggregates, None, num_clients=clients)


@every_solver
def test_a_solver_declares_its_contract(solver):
    assert isinstance(solver, AbstractSolver)
    assert all(isinstance(getattr(solver, name), bool) for name in DECLARED)
    assert not set(DECLARED) & set(type(solver).model_fields), "a contract is no setting"
    with pytest.raises(ValidationError):
        solver.name = "another"  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["no report", "number of clients", "all missing"])
@every_solver
def test_counts_are_needed_or_not_as_declared(solver, kind):
    case = planted(1, clients=8, rounds=64)
    problem = without_counts(case, kind)
    if solver.needs_counts:
        with pytest.raises(ProblemError, match=f"^solver: {solver.name} needs counts") as refused:
            solve(problem, solver)
        assert "\n" not in str(refused.value)
        assert all(name in str(refused.value) for name in WITHOUT_COUNTS)
    else:
        recovery = solve(problem, solver)
        true = {column.tobytes() for column in np.ascontiguousarray(case.participation.T)}
        assert {column.tobytes() for column in recovery.participation.T} == true
        assert Outcome.PROVED not in recovery.outcome


@every_solver
def test_a_refusal_comes_before_any_work(solver, monkeypatch):
    """Neither the aggregates are read nor a random number is drawn."""
    if not solver.needs_counts:
        assert unmet_need(solver, has_counts=False) is None
        return

    def fail(*_, **__):
        raise AssertionError("the work has begun")

    monkeypatch.setattr(Instance, "prepare", fail)
    rng = np.random.default_rng(0)
    with pytest.raises(ProblemError):
        disaggregate(planted(1, known=0.0).problem, solver, rng=rng)
    assert rng.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize("solver", [member() for member in MEMBERS.values() if member.needs_zero_rows])
def test_who_needs_zero_rows_claims_nothing_about_sums_without_them(solver):
    recovery = solve(planted(2, rounds=48).problem, solver)
    assert (recovery.outcome == Outcome.UNRESOLVED).all()
    assert all("no row of the sums" in reason for reason in recovery.reason)


def test_there_is_a_solver_for_sums_alone():
    """Or a refusal would have nothing to name."""
    assert "auto" in WITHOUT_COUNTS and "blind" in WITHOUT_COUNTS


@every_solver
def test_proofs_are_given_as_declared(solver):
    """Counts of windows that are empty or full fix every entry; wider ones leave it to the solver."""
    outcomes = solve(with_sizes(planted(3, rounds=64, window=1)), solver).outcome
    assert (outcomes == Outcome.PROVED).all() if solver.can_prove else Outcome.PROVED not in outcomes


@pytest.mark.parametrize("noise", ["sums", "counts"])
@every_solver
def test_nothing_is_proved_under_noise(solver, noise):
    """Windows of 8 rounds: no count is so small or large that it fixes entries by itself."""
    noise_sd, count_sd = (0.3, 0.0) if noise == "sums" else (0.0, 0.3)
    case = planted(5, clients=5, rounds=16, rate=0.4, window=8, dim=50, noise_sd=noise_sd, count_sd=count_sd)
    assert Outcome.PROVED not in solve(case.problem, solver).outcome


@every_solver
def test_a_failure_under_noise_is_no_comfort(solver):
    """Noise far above the signal: who assumes exact sums says so wherever it fails."""
    case = planted(6, clients=5, rounds=20, dim=30, noise_sd=20.0, window=5)
    recovery = solve(case.problem, solver)
    failed = (recovery.outcome == Outcome.UNRESOLVED) & (recovery.confidence < 1)
    assert failed.any() or solver.models_noise
    assert all(
        reason.startswith(ASSUMES_NO_NOISE) != solver.models_noise for reason in recovery.reason[failed]
    )


@every_solver
def test_exact_sums_are_what_every_solver_takes_for_granted(solver):
    recovery = solve(planted(7, clients=12, rounds=10, rate=0.5).problem, solver)
    assert (recovery.outcome == Outcome.UNRESOLVED).all()
    assert not any(ASSUMES_NO_NOISE in reason for reason in recovery.reason)


@pytest.mark.parametrize("dim", [None, 200], ids=["exact", "noisy"])
@every_solver
def test_the_same_rng_state_gives_the_same_columns(solver, dim):
    problem = planted(8, rounds=48, dim=dim, noise_sd=0.1 if dim else 0.0, known=0.8).problem
    first, second = (solve(problem, solver, seed=4) for _ in range(2))
    for field in ("participation", "outcome", "confidence", "reason"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))


@every_solver
def test_columns_have_the_shapes_that_they_promise(solver):
    case = planted(9)
    instance = Instance.prepare(case.problem, rng=np.random.default_rng(0))
    columns = solver.solve(instance, rng=np.random.default_rng(0))
    rounds, clients = case.participation.shape
    assert columns.participation.shape == (rounds, clients)
    assert columns.outcome.shape == columns.confidence.shape == columns.reason.shape == (clients,)
    assert set(np.unique(columns.participation)) <= {0, 1, int(UNKNOWN)}
    assert set(columns.outcome) <= set(Outcome)
    assert ((columns.confidence >= 0) & (columns.confidence <= 1)).all()
    unresolved = columns.outcome == Outcome.UNRESOLVED
    assert (columns.reason[unresolved] != "").all()


@every_solver
def test_an_instance_is_left_as_it_was(solver):
    """Several attempts share it."""
    instance = Instance.prepare(planted(10).problem, rng=np.random.default_rng(0))
    arrays = {name: getattr(instance, name).copy() for name in ("known", "expected", "determined")}
    basis = instance.subspace.basis.copy()
    solver.solve(instance, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(instance.subspace.basis, basis)
    for name, before in arrays.items():
        np.testing.assert_array_equal(getattr(instance, name), before)


class Boaster(AbstractSolver):
    """Declares that it cannot prove, and says that it did."""

    name: Literal["boaster"] = "boaster"
    needs_counts: ClassVar[bool] = False
    models_noise: ClassVar[bool] = False
    can_prove: ClassVar[bool] = False

    def solve(self, instance, *, rng, progress=None):
        clients = instance.num_columns
        return Columns(
            np.zeros((instance.rounds, clients), dtype=np.uint8),
            np.full(clients, Outcome.PROVED),
            np.ones(clients),
            np.full(clients, ""),
            self.name,
        )


def test_a_proof_by_a_solver_that_cannot_prove_is_refused():
    with pytest.raises(AssertionError, match="boaster declares that it cannot prove"):
        solve(planted(1).problem, Boaster())


def test_a_solver_without_a_method_is_none():
    class Empty(AbstractSolver):
        name: Literal["empty"] = "empty"

    with pytest.raises(TypeError, match="abstract"):
        Empty()  # type: ignore[abstract]

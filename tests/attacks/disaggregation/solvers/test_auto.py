"""Under noise `auto` keeps the attempt that explains the sums best, not the one that is surest of itself."""

import numpy as np
import pytest

from attacks.disaggregation import disaggregate
from attacks.disaggregation.recovery import UNKNOWN, Columns, Outcome
from attacks.disaggregation.solvers import auto
from attacks.disaggregation.solvers.annealing import Annealing
from attacks.disaggregation.solvers.blind import Blind
from attacks.disaggregation.solvers.message_passing import MessagePassing
from tests.helpers.drifting import drifting


@pytest.fixture(scope="module")
def problem():
    return drifting(3, drift=2.0, noise_sd=0.4, clients=12, rounds=48, dim=800)


def attempt(monkeypatch, solver, participation, *, confidence, likely):
    """Let a solver return these columns, of which so many are likely, each with this confidence."""
    clients = participation.shape[1]
    outcome = np.where(np.arange(clients) < likely, Outcome.LIKELY, Outcome.UNRESOLVED)
    nothing_to_say = np.full(clients, "")
    found = Columns(participation, outcome, np.full(clients, confidence), nothing_to_say, solver().name)
    monkeypatch.setattr(solver, "solve", lambda *args, **kwargs: found)


@pytest.mark.parametrize("surest", [MessagePassing, Annealing, Blind])
def test_the_surest_attempt_loses_if_another_one_explains_the_sums_better(monkeypatch, problem, surest):
    problem, P = problem
    wrong = np.random.default_rng(0).permutation(P, axis=0)
    right = Annealing if surest is MessagePassing else MessagePassing
    for solver in (MessagePassing, Annealing, Blind):
        columns = P if solver is right else wrong
        sure = {"confidence": 0.9, "likely": 5} if solver is surest else {"confidence": 0.6, "likely": 2}
        attempt(monkeypatch, solver, columns, **sure)
    recovery = disaggregate(problem, "auto", rng=np.random.default_rng(0))
    assert recovery.solver == right().name
    np.testing.assert_array_equal(recovery.participation, P)


def test_columns_on_which_good_attempts_differ_are_not_likely(monkeypatch, problem):
    problem, P = problem
    half = np.arange(P.shape[1]) < P.shape[1] // 2
    other = np.where(half, P, np.random.default_rng(0).permutation(P, axis=0))
    for solver, columns in ((MessagePassing, other), (Annealing, P), (Blind, other)):
        attempt(monkeypatch, solver, columns, confidence=0.8, likely=P.shape[1])
    recovery = disaggregate(problem, "auto", rng=np.random.default_rng(0))
    np.testing.assert_array_equal(recovery.outcome == Outcome.LIKELY, half)
    np.testing.assert_allclose(recovery.confidence, np.where(half, 0.8, 0.8 / 3))


@pytest.mark.parametrize("drift", [2.0, 0.0])
def test_drift_is_not_searched_as_noise_where_that_takes_long(monkeypatch, drift):
    problem, P = drifting(3, drift=drift, noise_sd=0.4, clients=12, rounds=48, dim=800)
    monkeypatch.setattr(auto, "MOST_SAMPLING", 0)
    attempt(monkeypatch, MessagePassing, P, confidence=0.6, likely=2)
    attempt(monkeypatch, Blind, P, confidence=0.9, likely=P.shape[1])
    tried = []
    monkeypatch.setattr(Blind, "solve", lambda *args, solve=Blind.solve, **kwargs: tried.append(1) or solve())
    disaggregate(problem, "auto", rng=np.random.default_rng(0))
    assert bool(tried) == (drift == 0)


def test_a_client_without_a_column_gets_the_guess_of_another_attempt(monkeypatch, problem):
    problem, P = problem
    clients = P.shape[1]
    has_one = np.arange(clients) < clients - 2
    wrong = np.random.default_rng(0).permutation(P, axis=0)
    attempt(monkeypatch, MessagePassing, wrong, confidence=0.1, likely=0)
    attempt(monkeypatch, Annealing, wrong, confidence=0.1, likely=0)
    attempt(monkeypatch, Blind, np.where(has_one, P, UNKNOWN), confidence=0.6, likely=clients - 2)
    recovery = disaggregate(problem, "auto", rng=np.random.default_rng(0))
    assert recovery.solver == Blind().name
    np.testing.assert_array_equal(recovery.participation, np.where(has_one, P, wrong))
    np.testing.assert_array_equal(recovery.outcome == Outcome.UNRESOLVED, ~has_one)

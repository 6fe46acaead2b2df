"""Annealing: it finds columns where the counts say too little for message passing to start from."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation import disaggregate
from attacks.disaggregation.noise.annealing import annealed
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import annealing
from attacks.disaggregation.solvers.annealing import Annealing
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


def test_no_more_replicas_than_are_needed_to_agree(rarely_counted, monkeypatch):
    """A small federation may have twelve; the three likeliest agree sooner where the evidence is clear."""
    problem, P = rarely_counted
    calls = []

    def counted(*args, **kwargs):
        calls.append(args)
        return annealed(*args, **kwargs)

    monkeypatch.setattr(annealing, "annealed", counted)
    recovery = disaggregate(problem, "annealing", rng=np.random.default_rng(0))
    assert annealing.VOTERS <= len(calls) < annealing.MOST_REPLICAS
    assert right(recovery.participation, P).all()


def test_the_replica_counts_under_whose_columns_the_sums_are_likeliest(rarely_counted, monkeypatch):
    """What a replica says of itself does not count: its fit may have ended anywhere."""
    problem, P = rarely_counted
    wrong = np.random.default_rng(0).permutation(P, axis=0).T.astype(np.uint8)
    truth = P.T.astype(np.uint8)
    order = iter([wrong, truth, wrong])

    def replica(evidence, model, *, cooling, rng):
        columns = next(order)
        loud = model.given(columns.T.astype(np.float64), evidence.cohort_sizes)
        # The wrong columns come with a model that fits well, the right ones with one that does not.
        return columns, replace(loud, noise=loud.noise * (5.0 if columns is truth else 1.0))

    monkeypatch.setattr(annealing, "annealed", replica)
    monkeypatch.setattr(annealing.Annealing, "_finished", lambda self, passing, windows, state: state)
    recovery = disaggregate(problem, Annealing(replicas=3), rng=np.random.default_rng(0))
    assert right(recovery.participation, P).all()


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


def test_energies_move_with_the_columns_that_counts_name(monkeypatch):
    """A loud client's column under another name stays loud."""
    problem, P = drifting(7, drift=2.0, noise_sd=0.4, clients=12, dim=1500)
    counts = replace(problem.counts, noise_sd=1.0)
    problem = replace(problem, counts=counts)
    passing = BeliefPropagation(problem, np.ones(12, dtype=np.bool_), iterations=1, damping=0.0)
    shuffle = np.random.default_rng(1).permutation(12)
    energy = np.linspace(0.5, 1.5, 12)
    columns = P.T[shuffle].astype(np.uint8)
    state = replace(passing.start(2.0, moving=True), columns=columns, relative_energy=energy[shuffle])
    restarted = []

    def keep(state, columns):
        restarted.append((state, columns))
        return replace(state, columns=columns)

    monkeypatch.setattr(passing, "restarted", keep)
    annealing._with_doubtful_names(passing, problem.windows, state, [state])
    ((after, named),) = restarted
    energy_of = {column.tobytes(): e for column, e in zip(P.T.astype(np.uint8), energy, strict=True)}
    expected = [energy_of[column.tobytes()] for column in np.ascontiguousarray(named)]
    np.testing.assert_allclose(after.relative_energy, expected)

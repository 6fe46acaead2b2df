"""No counts: the columns come from the sums alone, in any order."""

from dataclasses import replace

import numpy as np
import pytest

from analytics.release import Private
from analytics.report import windowed_counts
from attacks.disaggregation import UNKNOWN, DisaggregationProblem, disaggregate
from attacks.disaggregation.columns.generators import belief, generators
from attacks.disaggregation.noise.ica import independent_columns, split_in_two
from attacks.disaggregation.noise.matched_filter import decode
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.reflections.random_starts import ReflectionSearch
from attacks.disaggregation.solvers import Blind


def participation(seed, *, clients, rounds, rate):
    return (np.random.default_rng(seed).random((rounds, clients)) < rate).astype(np.uint8)


def sums(P, *, dim=None, noise_sd=0.0, seed=0):
    """Gaussian updates; every client that takes part brings its own noise."""
    rng = np.random.default_rng([seed, 1])
    G = rng.standard_normal((P.shape[1], dim or P.shape[1] + 4))
    noise = rng.standard_normal((len(P), G.shape[1])) * np.sqrt(P.sum(axis=1, keepdims=True))
    return P @ G + noise_sd * noise


def solve(A, *, num_clients=None, counts=None, cohort_sizes=None, seed=0):
    problem = DisaggregationProblem(A, counts, num_clients=num_clients, cohort_sizes=cohort_sizes)
    return disaggregate(problem, Blind(max_iterations=3000), rng=np.random.default_rng(seed))


def columns(P):
    return {column.tobytes() for column in np.ascontiguousarray(P.T)}


@pytest.mark.parametrize("sizes_known", [True, False])
@pytest.mark.parametrize(("clients", "rate"), [(32, 0.1), (32, 0.2), (24, 0.4)])
def test_all_columns_from_six_rounds_per_client(clients, rate, sizes_known):
    P = participation(1, clients=clients, rounds=6 * clients, rate=rate)
    recovery = solve(sums(P), num_clients=clients, cohort_sizes=P.sum(axis=1) if sizes_known else None)
    assert columns(recovery.participation) == columns(P)
    assert set(recovery.outcome) == {Outcome.CONSISTENT}
    assert len(recovery.clients) == clients


def test_the_number_of_clients_may_be_unknown():
    P = participation(2, clients=20, rounds=120, rate=0.15)
    recovery = solve(sums(P))
    assert columns(recovery.participation) == columns(P)


def test_clients_of_different_rates():
    rates = np.geomspace(0.06, 0.5, 24)
    P = participation(3, clients=24, rounds=240, rate=rates)
    recovery = solve(sums(P), num_clients=24, cohort_sizes=P.sum(axis=1))
    assert columns(recovery.participation) == columns(P)


def test_updates_belong_to_their_columns():
    P = participation(4, clients=16, rounds=128, rate=0.2)
    A = sums(P)
    recovery = solve(A, num_clients=16)
    assert np.abs(recovery.participation @ recovery.updates - A).max() < 1e-4


def test_counts_only_say_whose_a_column_is():
    P = participation(5, clients=24, rounds=144, rate=0.15)
    recovery = solve(sums(P), counts=windowed_counts(P, 48))
    assert np.array_equal(recovery.participation, P)


@pytest.mark.parametrize("seed", range(16))
def test_nothing_wrong_is_stood_by(seed):
    """Few ones per column, where sums of two clients' columns are binary as well: the cohort sizes tell."""
    P = participation(seed, clients=12, rounds=96, rate=0.1)
    recovery = solve(sums(P), num_clients=12, cohort_sizes=P.sum(axis=1), seed=seed)
    sure = recovery.participation[:, recovery.confidence > 0.95]
    assert columns(sure) <= columns(P)


def test_clients_that_are_always_together_share_one_column():
    P = participation(6, clients=12, rounds=96, rate=0.2)
    P[:, 7] = P[:, 3]
    recovery = solve(sums(P), num_clients=12)
    resolved = recovery.outcome != Outcome.UNRESOLVED
    assert columns(recovery.participation[:, resolved]) == columns(P)
    assert resolved.sum() == 11
    assert "always with another" in recovery.reason[~resolved][0]
    assert (recovery.participation[:, ~resolved] == UNKNOWN).all()


def test_noisy_sums():
    P = participation(7, clients=40, rounds=200, rate=0.1)
    recovery = solve(sums(P, dim=1000, noise_sd=0.7), num_clients=40, cohort_sizes=P.sum(axis=1))
    assert columns(recovery.participation) == columns(P)
    assert set(recovery.outcome) == {Outcome.LIKELY}


def test_noisy_sums_with_counts_are_named():
    P = participation(8, clients=40, rounds=200, rate=0.1)
    recovery = solve(sums(P, dim=1000, noise_sd=0.7), counts=windowed_counts(P, 20))
    assert np.array_equal(recovery.participation, P)


def test_pure_noise_is_unresolved():
    A = np.random.default_rng(9).standard_normal((120, 300))
    recovery = solve(A, num_clients=20)
    assert (recovery.outcome == Outcome.UNRESOLVED).all()
    assert (recovery.reason != "").all()


def test_a_search_that_finds_nothing_is_unresolved():
    problem = DisaggregationProblem(
        sums(participation(9, clients=64, rounds=80, rate=0.5)), None, num_clients=64
    )
    solver = Blind(max_iterations=20, max_block=0)
    recovery = disaggregate(problem, solver, rng=np.random.default_rng(0))
    assert (recovery.outcome == Outcome.UNRESOLVED).all()
    assert np.isnan(recovery.updates).all()


def test_fewer_rounds_than_clients_is_unresolved():
    recovery = solve(sums(participation(10, clients=12, rounds=10, rate=0.5)), num_clients=12)
    assert (recovery.outcome == Outcome.UNRESOLVED).all()


def test_the_same_seed_gives_the_same_recovery():
    P = participation(11, clients=24, rounds=120, rate=0.2)
    first, second = (solve(sums(P), num_clients=24, seed=3) for _ in range(2))
    assert np.array_equal(first.participation, second.participation)


def test_what_the_search_finds_lies_in_the_space():
    P = participation(12, clients=16, rounds=96, rate=0.2).astype(float)
    U = np.linalg.qr(P)[0]
    search = ReflectionSearch(
        U, np.array([0.2]), tolerance=(2e-5, 2e-5), starts=32, step=0.3, rng=np.random.default_rng(0)
    )
    found = search.run(500).astype(float)
    assert len(found) >= 16
    assert np.abs(found - found @ U @ U.T).max() < 1e-6
    assert len(np.unique(found, axis=0)) == len(found)


def test_sums_of_disjoint_columns_are_taken_apart():
    a, b, c = np.eye(3, 9, dtype=np.uint8) + np.eye(3, 9, k=3, dtype=np.uint8)
    kept = generators(np.array([a + b, a, c, a + c]))
    assert columns(kept.T) == columns(np.array([a, b, c]).T)


def test_cohort_sizes_tell_a_chance_inclusion_from_a_sum():
    inner = np.array([1, 1, 0, 0, 0, 0], dtype=np.uint8)
    outer = np.array([1, 1, 1, 1, 0, 0], dtype=np.uint8)
    both = np.array([inner, outer])
    assert columns(generators(both, total=both.sum(axis=0, dtype=np.int64)).T) == columns(both.T)
    assert columns(generators(both).T) == columns(np.array([inner, outer - inner]).T)


def test_columns_that_never_meet_another_are_doubtful():
    columns = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=np.uint8)
    assert (belief(columns) <= 0.9).all()
    assert (belief(columns[:2]) > 0.9).all()
    assert (belief(columns, total=columns.sum(axis=0, dtype=np.int64)) > 0.9).all()


def test_the_total_tells_how_many_columns_lack_another():
    a, b, c = np.array([[0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0]], dtype=np.uint8)
    total = (a + c) + b + c.astype(np.int64)  # in truth, c is inside one of the other two
    assert np.allclose(belief(np.stack((a, b, c)), total=total), [0.495, 0.495, 0.99])
    assert np.allclose(belief(np.stack((a, b, c)), total=total + c), [0, 0, 0.99])


def test_the_contrast_is_not_fooled_by_single_rounds():
    """At four rounds per client the skewest combination is a spike in one round; the columns are not."""
    P = participation(13, clients=64, rounds=256, rate=0.1)
    U = np.linalg.qr(P.astype(float))[0]
    soft = independent_columns(U, level=2.5, max_iterations=200, rng=np.random.default_rng(0))
    agreement = np.abs(np.corrcoef(soft.T, P.T)[: len(soft.T), len(soft.T) :]).max(axis=0)
    assert (agreement > 0.9).mean() > 0.9
    assert split_in_two(soft).sum(axis=0).min() > 1


def test_decoding_repairs_wrong_entries_and_knows_it_is_right():
    P = participation(14, clients=30, rounds=150, rate=0.1)
    A = sums(P, dim=1000, noise_sd=0.7)
    flipped = P ^ (np.random.default_rng(0).random(P.shape) < 0.01).astype(np.uint8)
    assert (flipped != P).any(axis=0).mean() > 0.5
    decoded = decode(A @ A.T, flipped)
    assert np.array_equal(decoded.columns, P)
    assert decoded.confidence.min() > 0.9


def test_counts_that_noise_drowns_leave_the_columns_and_take_the_names():
    """Private counts at ε = 0.1 per count: every column is found, and hardly one is at its client's place."""
    P = (np.random.default_rng(5).random((150, 40)) < 0.1).astype(np.uint8)
    A = P @ np.random.default_rng(6).standard_normal((40, 60))
    exact, rng = windowed_counts(P, 10), np.random.default_rng(7)
    # What OpenDP draws, but the same every time.
    noise = np.subtract(*rng.geometric(1 - np.exp(-0.1), (2, len(exact.count))))
    counts = replace(exact, count=exact.count + noise, noise_sd=Private(epsilon=0.1).noise_sd)
    problem = DisaggregationProblem(A, counts, cohort_sizes=P.sum(axis=1))
    recovery = disaggregate(problem, rng=np.random.default_rng(0))
    assert {c.tobytes() for c in recovery.participation.T} == {c.tobytes() for c in P.T}
    assert (recovery.participation == P).all(axis=0).mean() < 0.5
    assert "whose" in recovery.reason[recovery.confidence.argmin()]


def test_a_group_that_is_always_together_has_one_column_without_a_name():
    """Cohorts are larger than the number of different columns, which says nothing about the latter."""
    groups = (np.random.default_rng(1).random((48, 6)) < 0.3).astype(np.uint8)
    P = np.repeat(groups, 4, axis=1)
    A = P @ np.random.default_rng(2).standard_normal((24, 60))
    problem = DisaggregationProblem(A, None, cohort_sizes=P.sum(axis=1))
    recovery = disaggregate(problem, rng=np.random.default_rng(0))
    assert {c.tobytes() for c in recovery.participation.T} == {c.tobytes() for c in groups.T}


def test_wide_windows_under_noise_are_searched_without_counts():
    """Windows of 24 rounds fix no entry at zero, and message passing would be sure of wrong columns."""
    P = participation(3, clients=24, rounds=96, rate=0.2)
    A = sums(P, dim=400, noise_sd=0.3)
    problem = DisaggregationProblem(A, windowed_counts(P, 24), cohort_sizes=P.sum(axis=1))
    recovery = disaggregate(problem, rng=np.random.default_rng(0))
    assert recovery.solver == "blind"
    assert (recovery.participation == P).all(axis=0).mean() > 0.9


def test_cohorts_as_large_as_the_number_of_rounds_end_in_a_result():
    rng = np.random.default_rng(0)
    P = rng.random((20, 60)) < 0.5
    A = P @ rng.standard_normal((60, 500)) + 0.3 * rng.standard_normal((20, 500))
    recovery = disaggregate(DisaggregationProblem(A, None, cohort_sizes=P.sum(axis=1)), rng=rng)
    # All rounds share the clients' mean, and that is the only column that the sums show.
    assert recovery.participation.all()

"""Whose column is whose, and what the sizes of the cohorts add."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from analytics.release.private import Private
from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.columns.attribution import attribute, misfit, single_columns
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Auto, Projection
from attacks.disaggregation.space.subspace import find_subspace
from tests.helpers.planted import planted, right

COLUMNS = np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 1, 0], [0, 1, 1, 1, 0, 0]], dtype=np.uint8)


def windows(*rows, noise_sd=0.0):
    return Windows.from_report(ParticipationReport.from_rows(rows, noise_sd=noise_sd), rounds=6)


def test_a_client_that_fits_two_columns_gets_the_one_that_nobody_else_fits():
    loose, strict = (0, 3, 6, 1), (1, 0, 3, 2)
    whose = attribute(windows(loose, strict, (1, 3, 6, 1)), COLUMNS[1:])
    assert whose.column.tolist() == [-1, 0] or COLUMNS[1:][whose.column[0], 3:].sum() == 1
    assert whose.column[1] in {0, 1}
    assert len(set(whose.column.tolist())) == 2


def test_noisy_counts_choose_the_likelier_column_and_say_how_likely():
    rows = [(0, 0, 3, 0.8), (0, 3, 6, 0.1), (1, 0, 3, 2.2), (1, 3, 6, 0.7)]
    whose = attribute(windows(*rows, noise_sd=0.3), COLUMNS)
    assert whose.column.tolist()[0] == 0
    assert (whose.confidence > 0.9).all()
    unsure = attribute(windows(*rows, noise_sd=3.0), COLUMNS)
    assert (unsure.confidence < 0.9).all()


def test_confidence_keeps_its_word_where_errors_are_large():
    """Of the columns that are given to the wrong client, as many as confidence says."""
    wrong, said = 0, 0.0
    for seed in range(200):
        case = planted(seed, clients=24, rounds=96, window=8, count_sd=1.4)
        whose = attribute(case.problem.windows, case.participation.T)
        wrong += int((whose.column != np.arange(24)).sum())
        said += float((1 - whose.confidence).sum())
    assert wrong > 500
    assert 0.75 * wrong < said < 1.5 * wrong


def test_laplace_noise_is_read_as_such():
    """Private counts name more clients if their law is known, and the confidence keeps its word."""
    wrong, said = {}, {}
    for law in (True, False):
        wrong[law], said[law] = 0, 0.0
        for seed in range(60):
            case = planted(seed, clients=24, rounds=96, window=8)
            rng = np.random.default_rng(seed)
            exact = case.problem.counts
            draws = rng.geometric(1 - np.exp(-1), (2, len(exact.count)))
            sd = Private(epsilon=1.0).noise_sd
            counts = replace(exact, count=exact.count + draws[0] - draws[1], noise_sd=sd, laplace=law)
            whose = attribute(Windows.from_report(counts, 96), case.participation.T)
            wrong[law] += int((whose.column != np.arange(24)).sum())
            said[law] += float((1 - whose.confidence).sum())
    assert wrong[True] < 0.6 * wrong[False]
    assert 0.75 * wrong[True] < said[True] < 1.5 * wrong[True]


def test_an_exact_count_is_never_contradicted():
    assert attribute(windows((0, 0, 6, 6)), COLUMNS).column.tolist() == [-1]


def test_sums_of_columns_give_way_to_their_parts():
    P = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=np.uint8)
    space = find_subspace(planted(0, participation=P, window=1).problem, rng=np.random.default_rng(0))
    both = (P[:, 0] + P[:, 1])[None]
    kept = single_columns(np.concatenate((both, P.T)), space)
    assert sorted(map(tuple, kept)) == sorted(map(tuple, P.T))


def test_the_sizes_of_the_cohorts_complete_what_few_counts_leave_open():
    case = planted(1, clients=48, rounds=144, rate=0.1, window=12, known=0.5)
    problem = DisaggregationProblem(
        case.problem.aggregates,
        case.problem.counts,
        cohort_sizes=case.participation.sum(axis=1, dtype=np.int64),
    )
    recovery = disaggregate(problem, Projection(), rng=np.random.default_rng(0))
    assert right(recovery.participation, case.participation).mean() > 0.9
    assert (recovery.outcome != Outcome.UNRESOLVED).mean() > 0.9


def test_clients_with_windows_of_their_own():
    case = planted(2, clients=8, rounds=48)
    rows = []
    for client in range(8):
        cuts = [0, *range(1 + client % 4, 48, 5), 48]
        for start, stop in pairwise(cuts):
            rows.append((client, start, stop, int(case.participation[start:stop, client].sum())))
    problem = DisaggregationProblem(case.problem.aggregates, ParticipationReport.from_rows(rows))
    assert not problem.windows.shared
    recovery = disaggregate(problem, Projection(), rng=np.random.default_rng(0))
    assert right(recovery.participation, case.participation).all()


def test_overlapping_windows_are_obeyed():
    case = planted(3, clients=6, rounds=40)
    rows = [
        (client, start, start + 8, int(case.participation[start : start + 8, client].sum()))
        for client in range(6)
        for start in range(0, 33, 4)
    ]
    problem = DisaggregationProblem(case.problem.aggregates, ParticipationReport.from_rows(rows))
    assert problem.windows.overlapping
    recovery = disaggregate(problem, "gurobi", rng=np.random.default_rng(0))
    assert right(recovery.participation, case.participation).all()
    projected = disaggregate(problem, Projection(), rng=np.random.default_rng(0))
    sure = projected.outcome != Outcome.UNRESOLVED
    assert problem.windows.of(np.flatnonzero(sure)).meet(projected.participation.T[sure]).all()


def test_hidden_clients_do_not_stop_the_others():
    case = planted(4, clients=10, rounds=60)
    counts = case.problem.counts
    named = counts.client < 7
    report = ParticipationReport(
        counts.clients[:7], counts.client[named], counts.start[named], counts.stop[named], counts.count[named]
    )
    problem = DisaggregationProblem(case.problem.aggregates, report, num_clients=10)
    recovery = disaggregate(problem, rng=np.random.default_rng(0))
    assert right(recovery.participation, case.participation[:, :7]).all()


def test_repair_finds_what_projections_missed(monkeypatch):
    monkeypatch.setattr(
        "attacks.disaggregation.solvers.auto.Projection", lambda **_: Projection(max_iterations=10)
    )
    monkeypatch.setattr("attacks.disaggregation.solvers.auto.REPAIR_ONE_IN", 1)
    monkeypatch.setattr("attacks.disaggregation.columns.lattice.available", lambda: False)
    monkeypatch.setattr("attacks.disaggregation.columns.enumeration.MOST_PER_HALF", 0)
    case = planted(5, clients=16, rounds=40, window=8)
    without = disaggregate(case.problem, Auto(repair_time_limit_s=0), rng=np.random.default_rng(0))
    # Seconds of the clock, which a busy machine has fewer of.
    repaired = disaggregate(case.problem, Auto(repair_time_limit_s=300), rng=np.random.default_rng(0))
    assert (without.outcome == Outcome.UNRESOLVED).any()
    assert right(repaired.participation, case.participation).all()


def test_readings_of_a_counter_err_each_by_itself_and_their_differences_do_not():
    rng = np.random.default_rng(21)
    columns = (rng.random((5, 12)) < 0.5).astype(np.uint8)
    stops, sd = np.array([4, 8, 12]), 1.5
    held = np.cumsum(columns, axis=1, dtype=np.int64)[:, stops - 1]
    read = held + rng.normal(0, sd, held.shape)
    rows = [(k, 0, int(stop), read[k, i]) for k in range(5) for i, stop in enumerate(stops)]
    counts = Windows.from_report(ParticipationReport.from_rows(rows, noise_sd=sd), 12)
    expected = (((read[:, None] - held[None]) / sd) ** 2).sum(axis=2)
    np.testing.assert_allclose(misfit(counts, columns), expected)
    some = np.array([3, 1])
    np.testing.assert_allclose(misfit(counts.of(some), columns), expected[some])

"""Recovery under noise: each part against its definition, and the whole on planted problems."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from analytics import ParticipationReport, windowed_counts
from attacks.disaggregation import DisaggregationProblem, ProblemError, disaggregate
from attacks.disaggregation.counts.window_posterior import WindowPosterior
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation
from attacks.disaggregation.noise.detection import COHORT_SD, detect
from attacks.disaggregation.noise.error_scale import deviation_of_mixture
from attacks.disaggregation.noise.leave_one_out import LeaveOneOut, Products
from attacks.disaggregation.noise.round_model import RoundModel, Scales
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import MessagePassing
from attacks.disaggregation.space.gram_corrections import level_rounds, outliers
from scenarios.planted import blurred
from tests.helpers.drifting import drifting
from tests.helpers.planted import right

REPORTS = {
    "exact": ParticipationReport.from_rows([("a", 0, 4, 2), ("a", 4, 7, 1), ("b", 0, 4, 0), ("b", 4, 7, 3)]),
    "missing": ParticipationReport.from_rows([("a", 0, 4, 1), ("a", 4, 7, None), ("b", 2, 5, 2)]),
    "noisy": ParticipationReport.from_rows(
        [("a", 0, 4, 1.4), ("a", 4, 7, 0.2), ("b", 0, 4, 2.7), ("b", 4, 7, 3.1)], noise_sd=0.6
    ),
}


def enumerated(windows, rates, evidence, client):
    """Every column of seven rounds with its logarithmic weight."""
    columns = np.array(list(itertools.product((0, 1), repeat=7)))
    odds = evidence[client] + np.log(rates[client] / (1 - rates[client]))
    weight = columns @ odds
    for row in windows.constraints(client):
        off = columns[:, row.start : row.stop].sum(axis=1) - row.count
        weight += -0.5 * (off / row.sd) ** 2 if row.sd > 0 else np.where(off == 0, 0, -np.inf)
    return columns, weight


@pytest.mark.parametrize("name", REPORTS)
def test_window_posterior_sums_over_all_columns(name):
    rng = np.random.default_rng(0)
    windows = Windows.from_report(REPORTS[name], 7)
    rates, evidence = rng.uniform(0.1, 0.6, (2, 7)), 3 * rng.standard_normal((2, 7))
    posterior = WindowPosterior(windows, rates)
    mean = posterior.mean(evidence)
    best, log_chance = posterior.best(evidence)
    for client in range(2):
        columns, weight = enumerated(windows, rates, evidence, client)
        chance = np.exp(weight - np.logaddexp.reduce(weight))
        np.testing.assert_allclose(mean[client], chance @ columns, atol=1e-12)
        np.testing.assert_array_equal(best[client], columns[chance.argmax()])
        assert np.exp(log_chance[client]) == pytest.approx(chance.max())


@pytest.mark.parametrize("scales", [Scales(0.5, 0.1), Scales(0.5, 0.1, drift=1.5, course=(-0.5, 0.5))])
def test_leave_one_out_is_a_prediction_from_the_other_rounds(scales):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((9, 30))
    X = np.column_stack((rng.random((9, 4)), rng.integers(1, 4, (9, 1)).astype(float)))
    shared = rng.standard_normal((9, 2))
    model = RoundModel(
        A @ A.T, X, 0.1 * rng.random((9, 4)), scales, rng.uniform(0.5, 2, 4), rng.uniform(0.2, 1, 9), shared,
        np.ones(9),
    )  # fmt: skip
    others = LeaveOneOut(model)
    with_round, among = others.products(slice(3, 6))
    kernel = scales.kernel(9)
    kernel = np.ones((9, 9)) if kernel is None else kernel
    omega = model.covariance()
    for i, r in enumerate(range(3, 6)):
        rest = np.delete(np.arange(9), r)
        weights = np.linalg.inv(omega[np.ix_(rest, rest)])
        own = model.energies[:, None] * X[rest].T * kernel[r, rest]
        updates = np.concatenate((own, shared[rest].T)) @ weights @ A[rest]
        np.testing.assert_allclose(with_round[i], updates @ A[r], atol=1e-9)
        found = [among.times(np.tile(unit, (3, 1)))[i] for unit in np.eye(7)]
        np.testing.assert_allclose(found, updates @ updates.T, atol=1e-9)
        np.testing.assert_allclose(among.diagonal()[i], np.diag(found))
        left = A[r] - np.concatenate((X[r], shared[r])) @ updates
        assert others.residual[r] == pytest.approx(left @ left)


def test_fitting_never_makes_the_sums_less_likely():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((12, 40))
    X = np.concatenate((rng.random((12, 3)), np.ones((12, 1))), axis=1)
    doubt, shared = 0.05 * rng.random((12, 3)), np.zeros((12, 0))
    model = RoundModel(
        A @ A.T / 40, X, doubt, Scales(5.0, 5.0), np.ones(3), np.full(12, 0.1), shared, np.ones(12)
    )
    assert model.fitted().misfit() < model.misfit()
    for _ in range(3):
        ratio = LeaveOneOut(model).energy_ratio()
        louder = replace(model, relative_energy=model.relative_energy * np.sqrt(ratio))
        assert louder.misfit() < model.misfit()
        model = louder


def test_what_clients_share_is_known_in_every_direction_but_its_own():
    """A course of unbounded energy: predictions are those without it, from contrasts that it cannot reach."""
    rng = np.random.default_rng(13)
    A, X = rng.standard_normal((8, 30)), np.concatenate((rng.random((8, 2)), np.ones((8, 1))), axis=1)
    course = rng.uniform(1, 2, (8, 1))
    one = np.ones(8)
    model = RoundModel(A @ A.T, X, np.zeros((8, 2)), Scales(1, 0.1), np.ones(2), one, 1e3 * course, one)
    moved = A + course @ rng.standard_normal((1, 30))
    again = replace(model, gram=moved @ moved.T)
    np.testing.assert_allclose(LeaveOneOut(again).energy, LeaveOneOut(model).energy, atol=1e-4)


@pytest.mark.parametrize("missing", [None, np.array([0.5, -1.0])])
@pytest.mark.parametrize("doubtful", [[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
@pytest.mark.parametrize("alike", [0.0, 1e6], ids=["single precision", "double precision"])
def test_detection_is_the_best_linear_estimate(missing, doubtful, alike, capfd):
    """Clients that are nearly alike hide each other: that takes double precision."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((5, 8)) + np.sqrt(alike)
    left, right = 0.1 * rng.standard_normal((2, 2, 5))
    among, weight = Products(root @ root.T, left, right), np.array([1.0, 2.0])
    pairs = left[:, :, None] * right[:, None]
    J = weight[:, None, None] * (among.from_all - pairs - pairs.transpose(0, 2, 1))
    j = rng.standard_normal((2, 5))
    doubt = rng.uniform(0.01, 0.2, (2, 5)) * doubtful
    shift, variance = detect(among, weight, j, doubt, missing)
    tolerance = 1e-7 if alike else 1e-5
    for r in range(2):
        cohort = 0 if missing is None else 1 / COHORT_SD**2
        J_r, j_r = J[r] + cohort, j[r] + (0 if missing is None else cohort * missing[r])
        Q = np.linalg.inv(np.diag(doubt[r]) + np.linalg.inv(J_r))
        expected = Q @ np.linalg.solve(J_r, j_r) / np.diag(Q)
        np.testing.assert_allclose(shift[r], expected, rtol=tolerance)
        np.testing.assert_allclose(variance[r], 1 / np.diag(Q) - doubt[r], rtol=tolerance)
    assert not any(capfd.readouterr())  # LAPACK complains in words


def test_rounds_detected_together_are_detected_as_alone():
    """Also where they are more than fit together, and where other clients are unknown in every third."""
    rng = np.random.default_rng(8)
    updates = rng.standard_normal((40, 5, 9))
    left, right = 0.1 * rng.standard_normal((2, 40, 5))
    among = Products(updates @ updates.swapaxes(1, 2), left, right)
    weight, j, V = rng.uniform(0.5, 2, 40), rng.standard_normal((40, 5)), rng.uniform(0.01, 0.2, (40, 5))
    V[::3, :2] = 0
    missing = rng.standard_normal(40)
    shift, variance = detect(among, weight, j, V, missing)
    for r in range(40):
        one = slice(r, r + 1)
        alone = Products(among.from_all[one], left[one], right[one])
        expected = detect(alone, weight[one], j[one], V[one], missing[one])
        np.testing.assert_allclose((shift[one], variance[one]), expected, rtol=1e-4, atol=1e-6)


def test_detection_takes_the_nearest_positive_products():
    """Where leaving a round out takes a little too much, nothing is known about that direction."""
    together = np.full((1, 3), np.sqrt(1e6 * (1 + 1e-5) / 2))
    among = Products(np.full((3, 3), 1e6) + np.eye(3), together, together)
    j = np.array([[1.0, 0.0, -1.0]])
    shift, variance = detect(among, np.ones(1), j, np.full((1, 3), 0.1), None)
    Q = (np.eye(3) - 1 / 3) / 1.1
    np.testing.assert_allclose(shift, (Q @ j[0] / np.diag(Q))[None], atol=1e-6)
    np.testing.assert_allclose(variance, np.full((1, 3), 1 / Q[0, 0] - 0.1), rtol=1e-6)


def test_outliers_and_levelling_are_what_they_say():
    rng = np.random.default_rng(6)
    A = rng.standard_normal((20, 50))
    K = A @ A.T
    values = np.linalg.eigvalsh(K)
    excess, courses = outliers(K, typical=4, times=1.0)
    cut = np.linalg.eigvalsh(K - (courses * excess) @ courses.T)
    np.testing.assert_allclose(cut, np.minimum(values, values[-4]))
    assert len(outliers(K, typical=4, times=1.01 * values[-1] / values[-4])[0]) == 0
    growth = np.exp(np.linspace(0, 2, 20))
    sizes = np.full(20, 3.0)
    (grown, _), (flat, scale) = level_rounds(K * np.outer(growth, growth), sizes), level_rounds(K, sizes)
    np.testing.assert_allclose(grown, flat)
    np.testing.assert_allclose(K * np.outer(scale, scale), flat)
    assert np.trace(flat) == pytest.approx(len(K))


@pytest.mark.parametrize(("drift", "noise_sd"), [(0.0, 1.0), (1.0, 0.2)], ids=["fixed model", "moving model"])
def test_recovers_columns_under_noise_and_drift(drift, noise_sd):
    problem, P = drifting(7, drift=drift, noise_sd=noise_sd)
    recovery = disaggregate(problem, "auto", rng=np.random.default_rng(0))
    assert recovery.solver == "message_passing"
    assert right(recovery.participation, P).all()
    assert (recovery.outcome == Outcome.LIKELY).all()
    assert (recovery.confidence > 0.9).all()


@pytest.mark.parametrize(("drift", "attempts"), [(0.0, 1), (1.5, 2)])
def test_one_attempt_is_not_enough_where_updates_drift(monkeypatch, drift, attempts):
    """A second one has to agree: with drift, columns may be wrong though everything looks consistent."""
    tried, start = set(), BeliefPropagation.start

    def recorded(self, times, *, moving=False):
        tried.add(times)
        return start(self, times, moving=moving)

    monkeypatch.setattr(BeliefPropagation, "start", recorded)
    problem, P = drifting(1, drift=drift, noise_sd=0.2)
    recovery = disaggregate(problem, "message_passing", rng=np.random.default_rng(0))
    assert right(recovery.participation, P).all()
    assert len(tried) == attempts


def test_who_is_left_is_expected_where_cohorts_are_not_complete():
    problem, P = drifting(7, drift=0.0, noise_sd=1.0)
    everyone = np.ones(P.shape[1], dtype=np.bool_)
    passing = BeliefPropagation(problem, everyone, iterations=1, damping=0.5)
    left = np.arange(P.shape[1]) == 5
    wrong = np.where(left, 1.0 - P, P)
    np.testing.assert_allclose(passing.left_over(wrong, left)[:, 0], P[:, 5], atol=1e-12)
    two = left | (np.arange(P.shape[1]) == 7)
    expected = passing.left_over(np.where(two, 0.5, P), two)
    full = P[:, two].sum(axis=1) == 0
    np.testing.assert_allclose(expected[full], 0, atol=1e-12)
    unsized = BeliefPropagation(replace(problem, cohort_sizes=None), everyone, iterations=1, damping=0.5)
    np.testing.assert_array_equal(unsized.left_over(P.astype(float), left), unsized.prior[:, left])


def test_a_column_that_is_put_right_becomes_sure_though_nothing_else_moves():
    problem, P = drifting(7, drift=0.0, noise_sd=0.3)
    everyone = np.ones(P.shape[1], dtype=np.bool_)
    passing = BeliefPropagation(problem, everyone, iterations=60, damping=0.5)
    settled = passing.run(passing.start(2.0))
    assert (settled.columns.T == P).all()
    columns = settled.columns.copy()
    columns[5] = 1 - columns[5]
    again = passing.run(replace(settled, expected=P.astype(np.float64), columns=columns))
    assert (again.columns.T == P).all() and (again.confidence > 0.9).all()


def test_what_noise_drowns_is_unresolved_with_the_reason():
    problem, _ = drifting(8, drift=0.0, noise_sd=30.0, dim=500)
    recovery = disaggregate(problem, MessagePassing(repairs=0), rng=np.random.default_rng(0))
    unresolved = recovery.outcome == Outcome.UNRESOLVED
    assert unresolved.mean() > 0.9
    assert all("no column is likely" in reason for reason in recovery.reason[unresolved])
    assert (recovery.confidence[unresolved] < 0.5).all()


def test_recovery_does_not_depend_on_the_scale_of_the_updates():
    problem, P = drifting(9, drift=0.0, noise_sd=0.5)
    tiny = DisaggregationProblem(problem.aggregates * 1e-6, problem.counts, cohort_sizes=problem.cohort_sizes)
    recovery = disaggregate(tiny, MessagePassing(), rng=np.random.default_rng(0))
    assert right(recovery.participation, P).all()


@pytest.mark.parametrize("shapes", [[(3000,), (1,)], [(30, 100), ()], [(-30, -100)]])
def test_layer_shapes_must_fit_the_updates(shapes):
    problem, _ = drifting(10, drift=0.0, noise_sd=0.5)
    with pytest.raises(ProblemError, match="layer_shapes"):
        DisaggregationProblem(problem.aggregates, problem.counts, layer_shapes=shapes)


@pytest.mark.parametrize("known", ["missing", "noisy", "without cohort sizes"])
def test_recovers_with_less_than_exact_counts_and_cohorts(known):
    problem, P = drifting(11, drift=0.0, noise_sd=0.5)
    report = problem.counts
    if known == "missing":
        report = blurred(report, np.random.default_rng(0), known=0.8)
    if known == "noisy":
        report = blurred(report, np.random.default_rng(0), sd=0.4)
    sizes = None if known == "without cohort sizes" else problem.cohort_sizes
    blurry = DisaggregationProblem(problem.aggregates, report, cohort_sizes=sizes)
    recovery = disaggregate(blurry, MessagePassing(), rng=np.random.default_rng(0))
    assert right(recovery.participation, P).all()


def test_clients_with_the_same_counts_are_not_told_apart():
    problem, P = drifting(12, drift=0.0, noise_sd=0.2)
    total = windowed_counts(P, len(P))
    recovery = disaggregate(
        DisaggregationProblem(problem.aggregates, total),
        MessagePassing(repairs=0),
        rng=np.random.default_rng(0),
    )
    shared = np.array([(total.count == count).sum() > 1 for count in total.count])
    assert (recovery.confidence[shared] <= 0.5).all()


def test_support_is_what_the_evidence_says_of_the_counts():
    rng = np.random.default_rng(14)
    windows = Windows.from_report(REPORTS["exact"], 7)
    rates, evidence = np.full((2, 7), 0.3), 3 * rng.standard_normal((2, 7))
    support = WindowPosterior(windows, rates).support(evidence)
    for client in range(2):
        columns = np.array(list(itertools.product((0, 1), repeat=7)))
        met = np.all(
            [
                columns[:, row.start : row.stop].sum(axis=1) == row.count
                for row in windows.constraints(client)
            ],
            axis=0,
        )
        chances = []
        for odds in (evidence[client], np.zeros(7)):
            weight = np.exp(columns @ (odds + np.log(0.3 / 0.7)))
            chances.append(weight[met].sum() / weight.sum())
        assert support[client] == pytest.approx(np.log(chances[0] / chances[1]))


@pytest.mark.parametrize("sd", [0.1, 0.5, 2.0])
def test_spread_of_estimates_needs_no_known_zeros(sd):
    rng = np.random.default_rng(15)
    ones = rng.random((20_000, 3)) < [0.1, 0.3, 0.4]
    off = np.abs(ones + sd * rng.standard_normal(ones.shape))
    np.testing.assert_allclose(deviation_of_mixture(off, np.ones(3), ones.mean(axis=0)), sd, rtol=0.05)


def test_confidence_keeps_its_word():
    """Neither more nor less sure than right, on problems from easy ones to some that drown in noise.

    Cohorts are small, so that their size alone tells much: that must not pass for precision of the sums.
    """
    confidence, exact = [], []
    for seed, noise_sd in [(100, 1.5), (102, 2.5), (103, 3.0), (104, 3.5)]:
        problem, P = drifting(seed, drift=0.0, noise_sd=noise_sd, clients=16, rounds=64, dim=800)
        recovery = disaggregate(problem, MessagePassing(), rng=np.random.default_rng(0))
        confidence.append(recovery.confidence)
        exact.append(right(recovery.participation, P))
    sure, found = np.concatenate(confidence), np.concatenate(exact)
    assert (sure >= 0.95).sum() > 10
    assert found[sure >= 0.95].mean() >= 0.9
    assert found[sure < 0.2].mean() <= 0.3
    assert abs(sure.mean() - found.mean()) < 0.1


def test_sums_without_energy_leave_whoever_was_counted_unresolved():
    P = np.array([[0, 1], [0, 0], [0, 0], [0, 0]], dtype=np.uint8)
    problem = DisaggregationProblem(np.zeros((4, 30)), windowed_counts(P, 2), cohort_sizes=P.sum(axis=1))
    recovery = disaggregate(problem, MessagePassing(), rng=np.random.default_rng(0))
    assert recovery.outcome.tolist() == [Outcome.PROVED, Outcome.UNRESOLVED]

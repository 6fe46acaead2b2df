"""How updates turn with the server's model: its places explain what they share, and ones vary more."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from analytics import windowed_counts
from attacks.disaggregation import DisaggregationProblem, ProblemError, disaggregate
from attacks.disaggregation.noise.error_scale import log_odds_of_one, variance_of_ones
from tests.helpers.planted import right

CLIENTS, ROUNDS, ENTRIES = 12, 64, 400


def pulled_back():
    """Sums of a training in which every client also pulls the model back, and the model's places."""
    rng = np.random.default_rng(3)
    P = (rng.random((ROUNDS, CLIENTS)) < 0.25).astype(np.uint8)
    places = rng.standard_normal((ROUNDS, 4))
    updates, pull = rng.standard_normal((CLIENTS, ENTRIES)), 3 * rng.standard_normal((4, ENTRIES))
    sizes = P.sum(axis=1)
    noise = 0.5 * rng.standard_normal((ROUNDS, ENTRIES))
    sums = P @ updates + sizes[:, None] * (places @ pull) + noise
    counts = windowed_counts(P, 8)
    return P, DisaggregationProblem(sums, counts, cohort_sizes=sizes), places


def exact(problem, P):
    found = disaggregate(problem, "message_passing", rng=np.random.default_rng(0))
    return right(found.participation, P).mean()


def test_the_places_of_the_model_explain_what_all_updates_share():
    P, problem, places = pulled_back()
    assert exact(problem, P) < 0.7
    assert exact(replace(problem, places=places), P) == 1.0


def test_places_have_a_row_per_round():
    _, problem, places = pulled_back()
    with pytest.raises(ProblemError, match="places: shape"):
        DisaggregationProblem(problem.aggregates, problem.counts, places=places[:-1])


def test_odds_of_one_are_those_of_two_normal_distributions():
    estimate, variance, ratio = np.array([[-0.2, 0.4, 1.3]]), np.full((1, 3), 0.04), np.array([1.0, 3.0, 5.0])
    expected = norm.logpdf(estimate, 1, np.sqrt(ratio * variance)) - norm.logpdf(
        estimate, 0, np.sqrt(variance)
    )
    np.testing.assert_allclose(log_odds_of_one(estimate, variance, ratio), expected)


def test_an_estimate_far_below_zero_never_speaks_for_a_one():
    estimate = np.linspace(-20, 2, 200)[:, None]
    odds = log_odds_of_one(estimate, np.full_like(estimate, 0.1), np.array([4.0]))
    assert (np.diff(odds[:, 0]) >= 0).all() and odds[0] < 0


def test_variance_of_ones_is_that_of_the_clients_ones():
    rng = np.random.default_rng(0)
    far = np.abs(rng.standard_normal((4000, 3)) * (0.5, 1.5, 3.0))
    np.testing.assert_allclose(variance_of_ones(far), (1.0, 2.25, 9.0), rtol=0.1)
    far[7:] = np.nan
    np.testing.assert_array_equal(variance_of_ones(far), 1.0)

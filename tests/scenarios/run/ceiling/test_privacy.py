"""Bounds from (ε, δ): against the best test of the Gaussian mechanism, and for whom they hold."""

import pytest
from scipy.stats import norm

from fedsim.defences.central_dp import CentralDp
from fedsim.defences.local_dp import LocalDp
from scenarios.run.ceiling.privacy import privacy_bounds, right_at_most


def test_a_coin_at_zero_and_certainty_without_privacy():
    assert right_at_most(0.0, 0.0) == 0.5
    assert right_at_most(0.0, 1.0) == right_at_most(1e6, 0.0) == 1.0
    assert right_at_most(1.0, 0.0) == pytest.approx(2.718281828 / 3.718281828)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_no_bound_is_below_what_the_best_test_achieves(multiplier):
    """Noise of `multiplier` times the distance of two worlds: the likelihood ratio is right with Φ(1/2z)."""
    statement = CentralDp(norm=1.0, noise_multiplier=multiplier).statement(9)
    one, all_ = privacy_bounds([statement])
    assert (one.rounds, all_.rounds) == (1, 9)
    assert norm.cdf(0.5 / multiplier) <= one.right_at_most
    assert norm.cdf(0.5 * 3 / multiplier) <= all_.right_at_most
    assert one.right_at_most <= all_.right_at_most <= 1
    assert one.hides == statement["hides"]


def test_only_promises_against_the_server_count():
    on_model = CentralDp(norm=1.0, noise_multiplier=1.0, noise_on="model").statement(5)
    assert list(privacy_bounds([on_model, {"name": "clipping", "norm": 1.0}])) == []
    local = LocalDp(norm=1.0, epsilon=1.0).statement(5)
    assert [bound.defence for bound in privacy_bounds([local])] == ["local_dp", "local_dp"]

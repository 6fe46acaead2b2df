"""How likely counts are: Laplace noise as it is drawn, normal errors, exact counts and missing ones."""

import numpy as np
import pytest

from analytics.release.private import Private
from analytics.report import ParticipationReport
from attacks.disaggregation.counts.count_errors import count_weights, log_likelihood, padded_weights
from attacks.disaggregation.counts.windows import Windows

ROWS = [("a", 0, 3, 1.0), ("a", 3, 5, None), ("b", 0, 3, 2.0), ("b", 3, 5, 0.0)]


def windows(*, rounds=5, noise_sd=0.0, laplace=False):
    report = ParticipationReport.from_rows(ROWS, noise_sd=noise_sd, laplace=laplace)
    return Windows.from_report(report, rounds)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_laplace_noise_of_a_stated_deviation_has_its_epsilon(epsilon):
    """A difference of two geometric variables is x with a probability that falls by e^ε per step."""
    sd = np.array(Private(epsilon=epsilon).noise_sd)
    steps = np.diff(log_likelihood(np.arange(5.0), sd, np.array(True)))
    np.testing.assert_allclose(steps, -epsilon, rtol=1e-9)


def test_other_errors_are_normal():
    value = log_likelihood(np.array([0.0, 3.0]), np.array(1.5), np.array(False))
    np.testing.assert_allclose(value, [0, -2])


def test_exact_counts_allow_nothing_else_and_missing_ones_everything():
    weight = count_weights(windows(), most=3)
    assert weight[0, 0].tolist() == [-np.inf, 0, -np.inf, -np.inf]
    assert weight[0, 1].tolist() == [0, 0, 0, 0]
    assert count_weights(windows(), most=3, contradiction=5.0)[1, 0].tolist() == [-10, -5, 0, -5]


def test_errors_can_be_widened():
    narrow, wide = (count_weights(windows(noise_sd=0.5), most=2, least_sd=sd)[0, 0, 0] for sd in (0.0, 1.0))
    assert (narrow, wide) == (-2.0, -0.5)


def test_rounds_outside_of_all_windows_have_a_window_without_weights():
    inside, outside = padded_weights(windows()), padded_weights(windows(rounds=7))
    assert inside.shape == (2, 3, 4)
    assert outside.shape == (2, 3, 8)
    assert not outside[:, -1].any()

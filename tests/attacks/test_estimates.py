"""Estimated updates: least squares where columns are right, the mean where nothing is known."""

import numpy as np

from attacks.estimates import Estimates
from scenarios.planted import Planted


def estimated(expected=None, **settings):
    truth, transcript, _ = Planted(seed=2, clients=8, rounds=40, rate=0.3, **settings).plant()
    X = truth.participation.astype(np.float64) if expected is None else expected
    estimates = Estimates.of(transcript, X)
    return truth.updates, np.concatenate(list(estimates.parts()), axis=1), estimates.error


def test_right_columns_give_the_updates():
    true, found, error = estimated()
    np.testing.assert_allclose(found, true, atol=1e-2)
    assert (error < 1e-2).all()


def test_the_stated_error_is_the_error():
    true, found, error = estimated(dim=4000, noise_sd=1.5)
    actual = np.sqrt(((found - true) ** 2).mean(axis=1))
    np.testing.assert_allclose(error, actual, rtol=0.25)


def test_nothing_known_gives_the_mean():
    _, found, _ = estimated(expected=np.full((40, 8), 0.3))
    assert np.ptp(found, axis=0).max() < 1e-4

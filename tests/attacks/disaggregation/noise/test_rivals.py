"""Exchanges inside windows: they repair a nearly right column, and tell how sure it is."""

import numpy as np
import pytest

from attacks.disaggregation.noise.rivals import Rivals
from attacks.disaggregation.space.subspace import find_subspace
from tests.helpers.planted import planted

VARIANCE = 0.005


@pytest.fixture(scope="module")
def noisy():
    case = planted(0, clients=12, rounds=60, window=6, dim=600, noise_sd=0.2)
    space = find_subspace(case.problem, rng=np.random.default_rng(0))
    assert not space.exact
    return case, Rivals(case.problem.windows, space), space


def exchanged(column, window):
    """The column with one 1 and one 0 of the window exchanged, if it has both."""
    span = np.arange(6 * window, 6 * window + 6)
    ones, zeros = span[column[span] == 1], span[column[span] == 0]
    if not len(ones) or not len(zeros):
        return column
    other = column.copy()
    other[[ones[0], zeros[-1]]] ^= 1
    return other


@pytest.mark.parametrize("client", range(12))
def test_exchanges_lead_back_to_the_right_column(noisy, client):
    case, rivals, _ = noisy
    truth = case.participation[:, client]
    wrong = exchanged(exchanged(truth, 2), 7)
    assert np.array_equal(rivals.polished(wrong, client), truth)
    assert np.array_equal(rivals.polished(truth, client), truth)


def test_confidence_tells_right_from_wrong(noisy):
    case, rivals, _ = noisy
    for client in range(12):
        truth = case.participation[:, client]
        assert rivals.confidence(truth, client, VARIANCE) > 0.99
        wrong = exchanged(exchanged(truth, 2), 7)
        if not np.array_equal(wrong, truth):
            assert rivals.confidence(wrong, client, VARIANCE) < 0.01


def test_changes_are_the_true_changes_of_the_distance(noisy):
    case, rivals, space = noisy
    column = case.participation[:, 3]
    before = space.residual(column[None])[0]
    checked = 0
    for changes, places in rivals._changes(column, 3):
        for change, entries in zip(changes[:4], places[:4], strict=True):
            other = column.copy()
            other[entries] ^= 1
            assert space.residual(other[None])[0] - before == pytest.approx(change, abs=1e-5)
            checked += 1
    assert checked > 10

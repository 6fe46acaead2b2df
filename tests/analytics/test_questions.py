"""When devices are asked."""

import numpy as np
import pytest

from analytics.settings import AnalyticsSettings

ROUNDS, CLIENTS = 40, 5


def plan(seed=1, **settings):
    return AnalyticsSettings(**settings).questions(rounds=ROUNDS, clients=CLIENTS, seed=seed)


def test_equal_windows_ask_everybody_at_once():
    asked = plan(window=15).asked
    assert np.flatnonzero(asked.all(axis=1)).tolist() == [14, 29, 39]
    assert asked.sum() == 3 * CLIENTS


def test_own_windows_differ_between_devices_and_repeat_in_each():
    questions = plan(window=8, collection="own_windows")
    gaps = [np.diff(np.flatnonzero(column)[:-1]) for column in questions.asked.T]
    assert all(len(set(gap.tolist())) == 1 and 4 <= gap[0] <= 12 for gap in gaps)
    assert len({tuple(column) for column in questions.asked.T}) > 1


def test_late_answers_come_later_and_missing_ones_not_at_all():
    on_time, late = plan(window=5), plan(window=5, late=0.5)
    assert late.asked.sum() < on_time.asked.sum() + 1
    assert (np.cumsum(late.asked, axis=0) <= np.cumsum(on_time.asked, axis=0)).all()
    assert not np.array_equal(late.asked, on_time.asked)
    lost = plan(window=2, missing=0.5)
    assert (lost.heard <= lost.asked).all()
    assert 0.3 < lost.heard.sum() / lost.asked.sum() < 0.7


def test_off_asks_nobody():
    assert not plan(collection="off").asked.any()


@pytest.mark.parametrize("collection", ["windows", "own_windows", "cumulative"])
def test_a_devices_times_depend_on_itself_alone(collection):
    """A federation with more clients asks the first ones at the same times."""
    settings = AnalyticsSettings(window=6, collection=collection, late=0.3, missing=0.2)
    few, many = (settings.questions(rounds=ROUNDS, clients=n, seed=3) for n in (2, 5))
    np.testing.assert_array_equal(few.asked, many.asked[:, :2])
    np.testing.assert_array_equal(few.heard, many.heard[:, :2])
    assert many.asked[-1].all()

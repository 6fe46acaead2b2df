"""Release policies: what they publish, what they say about it, and that both agree."""

import numpy as np
import pytest

from analytics import ParticipationReport, windowed_counts
from analytics.release import Coarsening, Drop, Gaussian, Private, Rounding, Threshold
from analytics.settings import AnalyticsSettings
from fedsim.core.errors import UserError
from scenarios.run.scenario import load_scenario

P = (np.random.default_rng(0).random((400, 50)) < 0.3).astype(np.uint8)
COUNTS = windowed_counts(P, 10)


def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    "policy",
    [
        Rounding(multiple=2),
        Rounding(multiple=3),
        Rounding(multiple=4),
        Gaussian(sd=0.7),
        Private(epsilon=1.0),
        Private(epsilon=0.1),
        Private(epsilon=3.0),
    ],
    ids=str,
)
def test_the_stated_error_is_the_real_one(policy):
    """2000 counts: the root mean square is known to a few per cent (four, of the discrete Laplace's)."""
    published = policy.apply(COUNTS, rng())
    error = published.count - COUNTS.count
    assert np.sqrt((error**2).mean()) == pytest.approx(published.sd.mean(), rel=0.2)


def test_rounded_counts_are_multiples_and_halves_go_up():
    report = ParticipationReport.from_rows([(0, 0, 9, c) for c in (0, 1, 2, 3, 4, 5, 7)])
    assert Rounding(multiple=4).apply(report, rng()).count.tolist() == [0, 0, 4, 4, 4, 4, 8]


def test_small_counts_are_not_told_apart():
    published = Threshold(limit=3).apply(COUNTS, rng())
    small = COUNTS.count < 3
    assert len(np.unique(published.count[small])) == 1
    np.testing.assert_array_equal(published.count[~small], COUNTS.count[~small])
    assert (published.sd[~small] == 0).all()
    assert published.sd[small] == pytest.approx(np.std([0, 1, 2]))


def test_dropped_counts_are_missing():
    published = Drop(fraction=0.25).apply(COUNTS, rng())
    gone = np.isnan(published.count)
    assert gone.mean() == pytest.approx(0.25, abs=0.05)
    np.testing.assert_array_equal(published.count[~gone], COUNTS.count[~gone])


def test_coarser_windows_are_those_that_were_never_finer():
    published, coarse = Coarsening(counts=3).apply(COUNTS, rng()), windowed_counts(P, 30)
    for name in ("client", "start", "stop", "count"):
        np.testing.assert_array_equal(getattr(published, name), getattr(coarse, name))


def test_coarser_windows_add_up_errors_and_lack_what_is_missing():
    rows = [(0, 0, 2, 1.0), (0, 2, 4, 2.0), (0, 4, 6, None), (0, 6, 8, 1.0), (0, 8, 9, 0.0)]
    published = Coarsening(counts=2).apply(ParticipationReport.from_rows(rows, noise_sd=0.5), rng())
    assert np.array_equal(published.count, [3, np.nan, 0], equal_nan=True)
    assert published.sd == pytest.approx([0.5 * np.sqrt(2), 0.5 * np.sqrt(2), 0.5])


def test_of_a_growing_counter_the_last_reading_stays():
    rows = [(0, 0, stop, count) for stop, count in ((2, 1), (4, 2), (7, 2), (9, 3))]
    published = Coarsening(counts=2).apply(ParticipationReport.from_rows(rows), rng())
    assert published.stop.tolist() == [4, 9]
    assert published.count.tolist() == [2, 3]


def test_private_counts_state_their_privacy_by_unit():
    """ε of a count is the setting; one participation is in one window; a device is in every round."""
    stated = Private(epsilon=0.5).statement(COUNTS)
    assert stated["epsilon_per_count"] == pytest.approx(0.5)
    assert stated["epsilon_per_participation"] == pytest.approx(0.5)
    assert stated["epsilon_per_device"] == pytest.approx(0.5 * 400)


def test_readings_of_a_growing_counter_spend_more():
    readings = ParticipationReport.from_rows([(0, 0, 4, 1), (0, 0, 8, 2), (1, 0, 8, 3)])
    stated = Private(epsilon=1.0).statement(readings)
    assert stated["epsilon_per_participation"] == pytest.approx(2)
    assert stated["epsilon_per_device"] == pytest.approx(12)


def test_private_counts_say_that_their_noise_is_laplace_until_another_error_joins():
    published = Private(epsilon=0.5).apply(COUNTS, rng())
    assert published.is_laplace.all()
    assert not Gaussian(sd=1.0).apply(published, rng()).is_laplace.any()
    assert not Private(epsilon=0.5).apply(published, rng()).is_laplace.any()
    assert not Coarsening(counts=2).apply(published, rng()).is_laplace.any()
    dropped = Drop(fraction=0.5).apply(published, rng())
    assert dropped.is_laplace.all()


def test_private_counts_stay_whole_and_missing_ones_missing():
    with_gap = Drop(fraction=0.5).apply(COUNTS, rng())
    published = Private(epsilon=0.3).apply(with_gap, rng())
    np.testing.assert_array_equal(np.isnan(published.count), np.isnan(with_gap.count))
    known = published.count[~np.isnan(published.count)]
    assert (known == np.round(known)).all()


def test_policies_are_applied_in_order_and_errors_add_up():
    settings = AnalyticsSettings(release=(Coarsening(counts=2), Gaussian(sd=3.0)))
    published, statements = settings.publish(COUNTS, seed=1)
    assert len(published.count) == len(COUNTS.count) / 2
    assert (published.sd == 3).all()
    assert [s["name"] for s in statements] == ["coarsening", "gaussian"]
    again, _ = settings.publish(COUNTS, seed=1)
    np.testing.assert_array_equal(again.count, published.count)


def test_the_table_of_a_file_states_its_errors(tmp_path):
    published = Threshold(limit=3).apply(COUNTS, rng())
    published.write_csv(tmp_path / "counts.csv")
    again = ParticipationReport.read_csv(tmp_path / "counts.csv")
    np.testing.assert_array_equal(again.sd, published.sd)
    np.testing.assert_array_equal(again.count, published.count)
    COUNTS.write_csv(tmp_path / "exact.csv")
    assert (tmp_path / "exact.csv").read_text().splitlines()[0] == "client,start,stop,count"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("analytics.release=['hush']", "analytics.release.0.name is 'hush': expected 'drop'"),
        (
            "analytics.release=[{ name = 'rounding', multiple = 1 }]",
            "release.0.multiple is 1: expected greater",
        ),
        ("analytics.release=[{ name = 'rounding' }]", "analytics.release.0.multiple: missing"),
        (
            "analytics.release=[{ name = 'private', epsilon = 0 }]",
            "release.0.epsilon is 0: expected greater than or equal to",
        ),
        (
            "analytics.release=[{ name = 'drop', fraction = 2 }]",
            "release.0.fraction is 2: expected less than",
        ),
        ("analytics.release=[{ name = 'gaussian', sdd = 2 }]", "release.0.sdd: unknown key, expected one of"),
        (
            "analytics.release=[{ name = 'rounding', multiple = 2 }, { name = 'private', epsilon = 1 }]",
            "expected private before rounding",
        ),
        ("analytics.release=private", "analytics.release is 'private': expected a valid tuple"),
        ("analytics.collection=sometimes", "analytics.collection.name is 'sometimes': expected 'windows'"),
        (
            "analytics.collection={ name = 'own_windows', spread = 2 }",
            "collection.spread is 2: expected less",
        ),
        ("analytics.late=1", "analytics.late is 1: expected less than 1"),
        ("analytics.missing=-0.1", "analytics.missing is -0.1: expected greater than or equal to 0"),
    ],
)
def test_mistakes_are_one_line(scenario_file, override, message):
    with pytest.raises(UserError) as caught:
        load_scenario(scenario_file, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)

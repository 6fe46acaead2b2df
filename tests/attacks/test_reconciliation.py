"""Counts against sums: what is lost on the way shows, and becomes an error of the counts."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from analytics import windowed_counts
from analytics.release import Private
from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.counts.lost_updates import LEAST_LOSS_SD
from attacks.disaggregation.recovery import Outcome
from attacks.reconciliation import reconciled

TRAINED = (np.random.default_rng(2).random((40, 12)) < 0.3).astype(np.uint8)
COUNTS = windowed_counts(TRAINED, 5)


def test_counts_that_agree_with_the_sums_stay_exact():
    assert reconciled(COUNTS, TRAINED.sum(axis=1)) is COUNTS


def test_a_single_lost_update_makes_counts_uncertain():
    summed = TRAINED.copy()
    summed[tuple(np.argwhere(TRAINED)[0])] = 0
    np.testing.assert_array_equal(reconciled(COUNTS, summed.sum(axis=1)).sd, LEAST_LOSS_SD)


def test_the_error_grows_with_the_losses_and_with_the_count():
    """Of five updates five times as many are lost as of one."""
    half_lost = reconciled(COUNTS, TRAINED.sum(axis=1) / 2)
    np.testing.assert_allclose(half_lost.sd, np.maximum(LEAST_LOSS_SD, np.sqrt(COUNTS.count / 2)))
    all_lost = reconciled(COUNTS, np.zeros(40, dtype=np.int64))
    np.testing.assert_allclose(all_lost.sd, np.maximum(LEAST_LOSS_SD, np.sqrt(COUNTS.count)))


def test_losses_show_in_their_own_windows_only():
    """Missing answers elsewhere do not make up for them."""
    count = np.where(COUNTS.start >= 20, np.nan, COUNTS.count)
    partial = ParticipationReport(COUNTS.clients, COUNTS.client, COUNTS.start, COUNTS.stop, count)
    sizes = TRAINED.sum(axis=1)
    assert reconciled(partial, sizes) is partial
    sizes[np.argmax(sizes[:20] > 0)] -= 1
    assert (reconciled(partial, sizes).sd > 0).all()


def own_counts(trained, *, cumulative=False):
    """Exact counts in windows of which hardly two are the same, read from a growing counter if asked to."""
    rows = []
    for client in range(trained.shape[1]):
        bounds = [0, *range(1 + client % 5, 40, 4 + client % 3), 40]
        for last, stop in pairwise(bounds):
            start = 0 if cumulative else last
            rows.append((client, start, stop, int(trained[start:stop, client].sum())))
    return ParticipationReport.from_rows(rows)


@pytest.mark.parametrize("cumulative", [False, True])
def test_losses_show_whatever_windows_clients_have(cumulative):
    counts = own_counts(TRAINED, cumulative=cumulative)
    sizes = TRAINED.sum(axis=1)
    assert reconciled(counts, sizes) is counts
    all_lost = reconciled(counts, np.zeros_like(sizes))
    np.testing.assert_allclose(
        all_lost.sd, np.maximum(LEAST_LOSS_SD, np.sqrt(all_lost.count)), err_msg="each once"
    )
    sizes[np.argmax(sizes > 0)] -= 1
    np.testing.assert_array_equal(reconciled(counts, sizes).sd, LEAST_LOSS_SD)


def test_readings_of_a_counter_become_windows_that_err_each_by_itself():
    """What was lost before one reading is in all later ones, and in one difference."""
    sizes = TRAINED.sum(axis=1) // 2
    readings, windows = (reconciled(own_counts(TRAINED, cumulative=c), sizes) for c in (True, False))
    for field in ("client", "start", "stop", "count", "sd"):
        np.testing.assert_array_equal(getattr(readings, field), getattr(windows, field))


def test_windows_that_stay_overlapping_keep_their_counts():
    counts = ParticipationReport.from_rows([(0, 0, 4, 2), (0, 0, 6, 4), (0, 5, 8, 1), (1, 0, 8, 2)])
    table = reconciled(counts, np.array([1] * 4 + [0] * 4))
    rows = sorted(zip(table.client, table.start, table.stop, table.count, strict=True))
    assert rows == [(0, 0, 4, 2), (0, 4, 6, 2), (0, 5, 8, 1), (1, 0, 8, 2)]
    assert (table.sd > 0).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_columns_get_their_names_though_counters_hold_lost_updates(seed):
    rng = np.random.default_rng(seed)
    trained = rng.random((96, 24)) < 0.2
    P = trained & (rng.random(trained.shape) >= 0.05)
    rows = [
        (client, 0, stop, int(trained[:stop, client].sum()))
        for client in range(24)
        for stop in [*sorted(rng.choice(np.arange(1, 96), 11, replace=False).tolist()), 96]
    ]
    sizes = P.sum(axis=1)
    counts = reconciled(ParticipationReport.from_rows(rows), sizes)
    problem = DisaggregationProblem(P @ rng.standard_normal((24, 60)), counts, cohort_sizes=sizes)
    recovery = disaggregate(problem, rng=rng)
    assert (recovery.outcome == Outcome.LIKELY).all()
    assert (recovery.confidence > 0.95).all()
    assert (recovery.participation == P).all()


def test_losses_show_where_only_some_windows_differ():
    """Nobody answers for the last rounds; one client's windows straddle everybody else's before."""
    counts = ParticipationReport.from_rows(
        [(0, 0, 4, 2), (0, 4, 8, 2), (0, 8, 12, None), (1, 0, 6, 3), (1, 6, 8, 1), (1, 8, 12, None)]
    )
    assert reconciled(counts, np.array([1] * 8 + [5] * 4)) is counts
    lacking = reconciled(counts, np.array([1] * 7 + [0] + [5] * 4))
    np.testing.assert_allclose(lacking.sd, np.sqrt(lacking.count / 8), err_msg="one of the eight was lost")


def test_nothing_is_lost_if_nobody_answers():
    silent = replace(COUNTS, count=np.full_like(COUNTS.count, np.nan))
    assert reconciled(silent, np.zeros(40, dtype=np.int64)) is silent


def test_a_stated_error_is_kept():
    noisy = replace(COUNTS, count=COUNTS.count + 0.3, noise_sd=0.1)
    np.testing.assert_array_equal(reconciled(noisy, np.zeros(40, dtype=np.int64)).sd, noisy.sd)


@pytest.mark.parametrize("epsilon", [3.0, 10.0, 20.0])
def test_rare_whole_errors_stay_credible(epsilon):
    """Private counts: a Gaussian of the stated deviation would rule out what happens with a chance e^-ε."""
    published = Private(epsilon=epsilon).apply(COUNTS, np.random.default_rng(0))
    sd = reconciled(published, TRAINED.sum(axis=1)).sd[0]
    assert 0.5 / sd**2 <= 1.1 * epsilon
    assert sd >= published.sd[0]
    assert sd < 0.6, "and still nearly a whole number"

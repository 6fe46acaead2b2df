"""Counts against sums: what is lost on the way shows, and becomes an error of the counts."""

import numpy as np
import pytest

from analytics import windowed_counts
from analytics.report import ParticipationReport
from attacks.reconciliation import LEAST_SD, reconciled

TRAINED = (np.random.default_rng(2).random((40, 12)) < 0.3).astype(np.uint8)
COUNTS = windowed_counts(TRAINED, 5)


def test_counts_that_agree_with_the_sums_stay_exact():
    assert reconciled(COUNTS, TRAINED.sum(axis=1)) is COUNTS


def test_a_single_lost_update_makes_counts_uncertain():
    summed = TRAINED.copy()
    summed[tuple(np.argwhere(TRAINED)[0])] = 0
    assert reconciled(COUNTS, summed.sum(axis=1)).noise_sd == LEAST_SD


def test_the_error_grows_with_the_losses():
    summed = np.zeros_like(TRAINED)
    expected = np.sqrt(TRAINED.sum() / len(COUNTS.count))
    assert reconciled(COUNTS, summed.sum(axis=1)).noise_sd == pytest.approx(expected)


def test_losses_show_in_their_own_windows_only():
    """Missing answers elsewhere do not make up for them."""
    count = np.where(COUNTS.start >= 20, np.nan, COUNTS.count)
    partial = ParticipationReport(COUNTS.clients, COUNTS.client, COUNTS.start, COUNTS.stop, count)
    sizes = TRAINED.sum(axis=1)
    assert reconciled(partial, sizes) is partial
    sizes[np.argmax(sizes[:20] > 0)] -= 1
    assert reconciled(partial, sizes).noise_sd > 0


def test_a_stated_error_is_kept():
    noisy = windowed_counts(TRAINED, 5)
    noisy = ParticipationReport(noisy.clients, noisy.client, noisy.start, noisy.stop, noisy.count, 0.1)
    assert reconciled(noisy, np.zeros(40, dtype=np.int64)) is noisy

"""Updates that were counted and are in no sum: what it takes to see that, and what counts are worth then."""

from dataclasses import replace

import numpy as np
import pytest

from analytics import windowed_counts
from attacks.disaggregation import disaggregate
from attacks.disaggregation.counts.lost_updates import LEAST_LOSS_SD, with_losses, with_losses_from
from attacks.disaggregation.recovery import Outcome
from attacks.reconciliation import reconciled
from tests.helpers.planted import planted


def with_missing_answers(seed, *, lost):
    """A problem whose counts are of `lost` more updates than the sums hold, a fifth of them missing."""
    rng = np.random.default_rng(seed)
    trained = (rng.random((96, 24)) < 0.2).astype(np.uint8)
    P = trained.copy()
    P[tuple(rng.permutation(np.argwhere(trained))[:lost].T)] = 0
    case = planted(seed, participation=P)
    counts = windowed_counts(trained, 8)
    counts = replace(counts, count=np.where(rng.random(len(counts.count)) < 0.2, np.nan, counts.count))
    sizes = P.sum(axis=1, dtype=np.int64)
    assert reconciled(counts, sizes) is counts, "missing answers outweigh the losses"
    return replace(case.problem, counts=counts, cohort_sizes=sizes), P


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_columns_that_nobody_has_the_counts_of_betray_what_missing_answers_hide(seed):
    problem, P = with_missing_answers(seed, lost=15)
    recovery = disaggregate(problem, "blind", rng=np.random.default_rng(0))
    assert (recovery.outcome == Outcome.LIKELY).all()
    assert (recovery.participation == P).all()


def test_right_counts_stay_exact():
    problem, P = with_missing_answers(3, lost=0)
    recovery = disaggregate(problem, "blind", rng=np.random.default_rng(0))
    assert set(recovery.outcome) <= {Outcome.PROVED, Outcome.CONSISTENT}
    assert (recovery.participation == P).all()


def test_counts_are_not_doubted_unless_the_columns_are_beyond_doubt():
    """Without the cohorts' sizes, a column that nobody has the counts of may be a sum of two."""
    problem, _ = with_missing_answers(0, lost=15)
    recovery = disaggregate(replace(problem, cohort_sizes=None), "blind", rng=np.random.default_rng(0))
    assert (recovery.outcome != Outcome.LIKELY).all()
    assert (recovery.outcome == Outcome.UNRESOLVED).any()


def test_columns_without_names_say_how_much_was_lost():
    problem, P = with_missing_answers(0, lost=25)
    shuffled = np.random.default_rng(1).permutation(P.T)
    counts = problem.counts
    known = ~np.isnan(counts.count)
    held = windowed_counts(P, 8).count[known]
    share = (counts.count[known] - held).sum() / counts.count[known].sum()
    found, expected = with_losses_from(counts, shuffled), with_losses(counts, 96, share)
    np.testing.assert_allclose(found.sd, expected.sd)
    assert (found.sd > LEAST_LOSS_SD).any()

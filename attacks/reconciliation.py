"""What counts are worth: an attacker can see that they cannot all be right, and knows what noise they have.

A device counts the rounds that it trained in. If its update is lost on the way, or the round is void, the
count says more than the sum holds. Nobody needs to be told: the cohorts' sizes, which the server has, add
up to less than the counts of the same rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.counts.lost_updates import with_losses
from attacks.disaggregation.counts.windows import disjoint_table


def reconciled(counts: ParticipationReport, cohort_sizes: NDArray[np.int64]) -> ParticipationReport:
    """The counts with an error that accounts for what the sums lack; exact ones come back as they are.

    `cohort_sizes` (rounds,) says how many updates each sum holds. Counts that state an error already keep
    it, unless it is too small to be Gaussian. Otherwise the updates that all clients together counted beyond
    the cohorts of the same rounds were lost one by one (`with_losses`).
    """
    if (counts.sd > 0).any():
        return replace(counts, noise_sd=_credible_sd(counts))
    windows = disjoint_table(counts, len(cohort_sizes)).rows
    lost = _lost_updates(windows, cohort_sizes)
    if lost == 0:
        return counts
    return with_losses(counts, len(cohort_sizes), lost / windows[:, 3].sum())


def _credible_sd(counts: ParticipationReport) -> NDArray[np.float64]:
    """(n,) the errors as solvers should take them, which think of them as Gaussian.

    Whole-numbered noise of a variance v below one means that a count is wrong by one with a chance of v/2
    each way. The error is widened until a Gaussian finds that no less likely.
    """
    whole = (counts.count == np.round(counts.count)) & (counts.sd > 0) & (counts.sd < 1)
    chance = np.where(whole, counts.sd**2 / 2, 0.5)
    return np.where(whole, np.maximum(counts.sd, 1 / np.sqrt(-2 * np.log(chance))), counts.sd)


def _lost_updates(windows: NDArray[np.float64], cohort_sizes: NDArray[np.int64]) -> float:
    """Participations that were counted beyond the cohorts' sizes, at least: no excess is counted twice.

    Counts of disjoint `windows` (`disjoint_table`) can be held against the cohorts of any span of rounds that
    they lie in, whether or not clients have the same windows; a missing one only hides losses. So the rounds
    are cut into the spans with the most excess in all.
    """
    bounds, place = np.unique(windows[:, 1:3].T.astype(np.int64), return_inverse=True)
    start, stop = place.reshape(2, -1)
    by_end = np.argsort(stop, kind="stable")
    ends = np.searchsorted(stop[by_end], np.arange(len(bounds) + 1))
    held = np.concatenate(([0], np.cumsum(cohort_sizes)))[bounds]
    most = np.zeros(max(1, len(bounds)))  # excess before each bound
    counted = np.zeros(len(bounds))  # in the windows from each bound to the present end
    for end in range(1, len(bounds)):
        ending = by_end[ends[end] : ends[end + 1]]
        begun = np.bincount(start[ending], windows[ending, 3], minlength=len(bounds))
        counted += np.cumsum(begun[::-1])[::-1]
        excess = counted[:end] - (held[end] - held[:end])
        most[end] = max(most[end - 1], float((most[:end] + excess).max()))
    return float(most[-1])

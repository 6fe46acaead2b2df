"""From a server's records to a problem: how far the counts can be believed.

A device counts the rounds that it trained in. If its update is lost on the way, or the round is void, the
count is larger than the device's participation in the sums. The server can see that losses happened: the
cohort sizes add up to less than the counts of the same rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.counts.disjoint_table import disjoint_table
from attacks.disaggregation.counts.lost_updates import with_losses


def posed_problem(
    aggregates: NDArray[Any],
    counts: ParticipationReport | None,
    *,
    num_clients: int | None = None,
    cohort_sizes: NDArray[np.int64] | None = None,
    layer_shapes: Sequence[tuple[int, ...]] | None = None,
    places: NDArray[np.float64] | None = None,
) -> DisaggregationProblem:
    """The problem that the records of a server pose: see `DisaggregationProblem` for the fields.

    Counts get the error that the cohort sizes reveal.
    """
    problem = DisaggregationProblem(
        aggregates,
        counts,
        num_clients=num_clients,
        cohort_sizes=cohort_sizes,
        layer_shapes=layer_shapes,
        places=places,
    )
    if counts is None or cohort_sizes is None:
        return problem
    believed = reconciled(counts, cohort_sizes)
    if believed is counts:
        return problem
    lost = 0.0 if (counts.sd > 0).any() else _lost_share(counts, cohort_sizes)
    return replace(problem, counts=believed, lost=lost)


def reconciled(counts: ParticipationReport, cohort_sizes: NDArray[np.int64]) -> ParticipationReport:
    """The counts with an error that explains the updates missing from the sums; none missing, no change.

    `cohort_sizes` (rounds,) is the number of updates in each sum. Counts that state an error keep it, unless
    it is too small for a Gaussian. Otherwise the clients together may have counted more participations than
    the cohorts of the same rounds hold. The difference is the number of lost updates (see `with_losses`).
    """
    if (counts.sd > 0).any():
        return _credible(counts)
    share = _lost_share(counts, cohort_sizes)
    return counts if share == 0 else with_losses(counts, len(cohort_sizes), share)


def _lost_share(counts: ParticipationReport, cohort_sizes: NDArray[np.int64]) -> float:
    """The part of the counted participations that is in no sum, as far as the cohort sizes tell."""
    windows = disjoint_table(counts, len(cohort_sizes)).rows
    lost = _lost_updates(windows, cohort_sizes)
    return float(lost / windows[:, 3].sum()) if lost else 0.0


def _credible(counts: ParticipationReport) -> ParticipationReport:
    """The counts with errors that solvers can treat as Gaussian where they are rare.

    Integer noise with a variance v below one means that a count is off by one with probability v/2 in each
    direction. The standard deviation is widened until a Gaussian makes such an error at least as likely.
    Wider Laplace noise stays as it is.
    """
    whole = (counts.count == np.round(counts.count)) & (counts.sd > 0) & (counts.sd < 1)
    chance = np.where(whole, counts.sd**2 / 2, 0.5)
    sd = np.where(whole, np.maximum(counts.sd, 1 / np.sqrt(-2 * np.log(chance))), counts.sd)
    return replace(counts, noise_sd=sd, laplace=counts.is_laplace & ~whole)


def _lost_updates(windows: NDArray[np.float64], cohort_sizes: NDArray[np.int64]) -> float:
    """A lower bound on the participations that were counted and are in no sum.

    The counts of the disjoint `windows` (`disjoint_table`) inside a span of rounds cannot exceed the cohort
    sizes of the span. That holds whether or not clients share windows; a missing count only hides losses. The
    rounds are cut into spans so that the total excess is largest, by dynamic programming over the bounds.
    """
    bounds, place = np.unique(windows[:, 1:3].T.astype(np.int64), return_inverse=True)
    start, stop = place.reshape(2, -1)
    by_end = np.argsort(stop, kind="stable")
    ends = np.searchsorted(stop[by_end], np.arange(len(bounds) + 1))
    held = np.concatenate(([0], np.cumsum(cohort_sizes)))[bounds]
    most = np.zeros(max(1, len(bounds)))  # largest total excess before each bound
    counted = np.zeros(len(bounds))  # participations in the windows from each bound to the current end
    for end in range(1, len(bounds)):
        ending = by_end[ends[end] : ends[end + 1]]
        begun = np.bincount(start[ending], windows[ending, 3], minlength=len(bounds))
        counted += np.cumsum(begun[::-1])[::-1]
        excess = counted[:end] - (held[end] - held[:end])
        most[end] = max(most[end - 1], float((most[:end] + excess).max()))
    return float(most[-1])

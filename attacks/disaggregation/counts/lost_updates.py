"""Updates that devices counted, and that no sum holds: lost on the way, or of a void round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.counts.windows import Windows, disjoint_table

LEAST_SD = 1 / 3
"""A loss makes a count wrong by a whole one, however rare it is: that must not be beyond belief."""


def with_losses(counts: ParticipationReport, rounds: int, share: float) -> ParticipationReport:
    """Exact counts with the error that they have if a `share` of what was counted is lost.

    Any update that was counted may be one of those: the number lost in a count is about Poisson, in
    proportion to the count, and so is its variance. A growing counter keeps what was lost before, so that its
    readings err alike. Their differences err each by itself: it is these that come back, over windows that
    are disjoint as far as differences make them so.
    """
    disjoint = disjoint_table(counts, rounds)
    rest = [(k, r.start, r.stop, r.count, r.sd) for k, rows in disjoint.overlapping.items() for r in rows]
    table = np.concatenate((disjoint.rows, np.reshape(rest, (-1, 5))))
    client, start, stop = table[:, :3].astype(np.int64).T
    sd = np.maximum(LEAST_SD, np.sqrt(share * table[:, 3]))
    return ParticipationReport(counts.clients, client, start, stop, table[:, 3], sd)


def with_losses_from(counts: ParticipationReport, columns: NDArray[np.uint8]) -> ParticipationReport:
    """Exact counts that contradict the `columns` (K, rounds) of all clients, with the error that explains it.

    Missing answers can hide losses from a comparison of totals. But if everybody's column is there, in
    whatever order, and no order has the counts, these are wrong. The columns that fit best say by how much.
    """
    rounds = columns.shape[1]
    windows = Windows.from_report(with_losses(counts, rounds, 0.0), rounds)
    whose = attribute(windows, columns).column
    named = np.flatnonzero(whose >= 0)
    counted = np.nansum(windows.count[named])
    lost = np.nansum(windows.count[named] - windows.of(named).sums(columns[whose[named]]))
    return with_losses(counts, rounds, max(0.0, float(lost / max(counted, 1.0))))

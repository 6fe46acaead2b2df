"""Updates that devices counted but no aggregate contains: lost on the way, or part of a void round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.counts.disjoint_table import disjoint_table
from attacks.disaggregation.counts.windows import Windows

LEAST_LOSS_SD = 1 / 3
"""Least error of a count. Even a rare loss makes a count wrong by one, which must stay credible."""


def with_losses(counts: ParticipationReport, rounds: int, share: float) -> ParticipationReport:
    """Exact counts with the error that they have if a `share` of the counted updates is lost.

    Any counted update may be lost, so the number of losses in a count is about Poisson, with a mean and a
    variance proportional to the count. The readings of a cumulative counter share their earlier losses, but
    the losses in their differences are independent. So the result has differences, over disjoint windows
    where possible.
    """
    disjoint = disjoint_table(counts, rounds)
    rest = [(k, r.start, r.stop, r.count, r.sd) for k, rows in disjoint.overlapping.items() for r in rows]
    table = np.concatenate((disjoint.rows, np.reshape(rest, (-1, 5))))
    client, start, stop = table[:, :3].astype(np.int64).T
    sd = np.maximum(LEAST_LOSS_SD, np.sqrt(share * table[:, 3]))
    return ParticipationReport(counts.clients, client, start, stop, table[:, 3], sd)


def with_losses_from(counts: ParticipationReport, columns: NDArray[np.uint8]) -> ParticipationReport:
    """Exact counts that contradict all clients' `columns` (K, rounds), with the error that explains this.

    Missing answers can hide losses from a comparison of totals. But if all clients' columns are known, in any
    order, and no order has the counts, then the counts are wrong. The best fitting columns say by how much.
    """
    rounds = columns.shape[1]
    windows = Windows.from_report(with_losses(counts, rounds, 0.0), rounds)
    whose = attribute(windows, columns).column
    named = np.flatnonzero(whose >= 0)
    counted = np.nansum(windows.count[named])
    lost = np.nansum(windows.count[named] - windows.of(named).sums(columns[whose[named]]))
    return with_losses(counts, rounds, max(0.0, float(lost / max(counted, 1.0))))

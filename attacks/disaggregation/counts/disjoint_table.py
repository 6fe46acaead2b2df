"""The counts of a report as one table of disjoint windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.counts.intervals import Row, disjoint_rows


class DisjointTable(NamedTuple):
    """Counts over disjoint windows: `rows` (n, 5) are the index of a client, start, stop, count and sd.

    `laplace` (n,) marks Laplace errors; differences of counts have none. `overlapping` and `readings` are
    those of `Windows`.
    """

    rows: NDArray[np.float64]
    laplace: NDArray[np.bool_]
    overlapping: dict[int, tuple[Row, ...]]
    readings: dict[int, tuple[Row, ...]]


def disjoint_table(report: ParticipationReport, rounds: int) -> DisjointTable:
    """The known counts of a report. Raises WindowsError if exact counts contradict each other."""
    known = ~np.isnan(report.count)
    order = in_order(report.client[known], report.start[known], report.stop[known], rounds)
    columns = (report.client, report.start, report.stop, report.count, report.sd)
    table = np.stack([column[known][order] for column in columns], axis=1)
    laplace = report.is_laplace[known][order]
    client, start, stop = table[:, 0], table[:, 1], table[:, 2]
    clash = (client[1:] == client[:-1]) & (start[1:] < stop[:-1])
    overlapping: dict[int, tuple[Row, ...]] = {}
    readings: dict[int, tuple[Row, ...]] = {}
    apart = ~np.isin(client, client[1:][clash]) if clash.any() else slice(None)
    tables = [table[apart]]
    for index in np.unique(client[1:][clash]).astype(int).tolist():
        rows = [Row(int(a), int(b), c, s) for _, a, b, c, s in table[client == index].tolist()]
        disjoint, rest = disjoint_rows(rows, str(report.clients[index]))
        if rest:
            overlapping[index] = tuple(rest)
        if any(row.sd > 0 for row in rows):
            readings[index] = tuple(rows)
        tables.append(np.array([(index, row.start, row.stop, row.count, row.sd) for row in disjoint]))
    differences = sum(map(len, tables[1:]))
    laplace = np.concatenate((laplace[apart], np.zeros(differences, dtype=np.bool_)))
    return DisjointTable(np.concatenate(tables), laplace, overlapping, readings)


def in_order(
    client: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64], rounds: int
) -> NDArray[np.intp] | slice:
    """The order of rows by client, then by time. A sorted table, as most large ones are, is not copied."""
    key = (client * (rounds + 1) + start) * (rounds + 1) + stop
    return slice(None) if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")

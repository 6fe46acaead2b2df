"""Counts of one client over intervals that may be nested, repeated or overlapping.

A count over an interval is a difference of two running totals. So the readings of a cumulative counter become
disjoint windows by subtraction. A running total rises by 0 or 1 per round: counts contradict each other if
and only if these difference constraints have a negative cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np


class WindowsError(ValueError):
    """The counts of one client contradict each other."""


@dataclass(frozen=True)
class Row:
    """`count` participations in the rounds start..stop-1, known up to `sd`."""

    start: int
    stop: int
    count: float
    sd: float


def disjoint_rows(rows: list[Row], client: str) -> tuple[list[Row], list[Row]]:
    """Disjoint rows, and rows that overlap them; together they are equivalent to the rows given.

    Raises WindowsError if exact counts contradict each other.
    """
    _check_running_totals(rows, client)
    rows = list(rows)
    while (pair := _nested_pair(rows)) is not None:
        outer, inner = pair
        rows.remove(outer)
        if (outer.start, outer.stop) == (inner.start, inner.stop):
            rows.remove(inner)
            weight = 0.5 if outer.sd == inner.sd else float(inner.sd > outer.sd)
            sd = outer.sd / np.sqrt(2) if outer.sd == inner.sd else min(outer.sd, inner.sd)
            rows.append(Row(inner.start, inner.stop, weight * outer.count + (1 - weight) * inner.count, sd))
            continue
        start, stop = (inner.stop, outer.stop) if outer.start == inner.start else (outer.start, inner.start)
        rows.append(Row(start, stop, outer.count - inner.count, float(np.hypot(outer.sd, inner.sd))))
    disjoint: list[Row] = []
    rest: list[Row] = []
    for row in sorted(rows, key=lambda row: row.stop):
        (disjoint if not disjoint or row.start >= disjoint[-1].stop else rest).append(row)
    return disjoint, rest


def _nested_pair(rows: list[Row]) -> tuple[Row, Row] | None:
    """Two windows that share an end, the longer one first: the longest of all that do, and the next.

    This order subtracts each reading of a cumulative counter from the next one. A difference has the errors
    of both counts. Starting from the shortest window would give differences of differences, whose variance
    doubles each time.
    """
    for end in ("start", "stop"):
        rows.sort(key=lambda row: (getattr(row, end), row.stop - row.start), reverse=True)
        for outer, inner in pairwise(rows):
            if getattr(inner, end) == getattr(outer, end):
                return outer, inner
    return None


def _check_running_totals(rows: list[Row], client: str) -> None:
    """Raise WindowsError if the bounds on the running totals have a negative cycle (Bellman–Ford)."""
    exact = [row for row in rows if row.sd == 0]
    if not exact:
        return
    points = sorted({row.start for row in exact} | {row.stop for row in exact})
    index = {point: i for i, point in enumerate(points)}
    edges: list[tuple[int, int, float]] = [(i, i + 1, b - a) for i, (a, b) in enumerate(pairwise(points))]
    edges += [(i + 1, i, 0) for i in range(len(points) - 1)]
    edges += [(index[row.start], index[row.stop], row.count) for row in exact]
    edges += [(index[row.stop], index[row.start], -row.count) for row in exact]
    tail, head = np.array([edge[:2] for edge in edges]).T
    bound = np.array([edge[2] for edge in edges])
    total = np.zeros(len(points))
    for _ in range(len(points) + 1):
        before = total.copy()
        np.minimum.at(total, head, before[tail] + bound)
        if (total == before).all():
            return
    spans = ", ".join(f"{row.start}..{row.stop - 1}: {row.count:g}" for row in exact[:6])
    raise WindowsError(
        f"client {client}: counts contradict each other (rounds {spans}{', …' if len(exact) > 6 else ''})"
    )

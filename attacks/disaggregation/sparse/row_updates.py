"""Updates row by row: least squares among the few clients that are behind a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.sparse.traces import Traces

LIKELY = 0.5
"""Least probability of a client that is taken for an author."""


def write_rows(
    updates: NDArray[np.float32],
    aggregates: NDArray[Any],
    traces: Traces,
    columns: NDArray[np.bool_],
    authors: NDArray[np.float32],
) -> None:
    """Replace the rows of all `updates` (K, dim), in place, where a row has fewer authors than rounds.

    A row of a client that is no author becomes zero. `columns` (rounds, K) and `authors` (n, K) as in
    `authorship`; clients without a column keep what they have. If the model moves, a row is the mean of the
    client's rounds.
    """
    present = np.flatnonzero(columns.any(axis=0))
    order = np.argsort(traces.pattern_of, kind="stable")
    ends = np.searchsorted(traces.pattern_of[order], np.arange(len(traces.patterns) + 1))
    first, width = _places(traces)
    for number in range(len(traces.patterns)):
        chosen = present[authors[number, present] >= LIKELY]
        rounds = traces.patterns[number]
        if len(chosen) > rounds.sum() // 2:
            continue
        rows = order[ends[number] : ends[number + 1]]
        if not len(rows):
            continue
        entries = (first[rows][:, None] + np.arange(width[rows[0]])).ravel() if _same(width[rows]) else None
        if entries is None:
            entries = np.concatenate([first[r] + np.arange(width[r]) for r in rows])
        updates[np.ix_(present, entries)] = 0
        if len(chosen):
            X = columns[rounds][:, chosen].astype(np.float64)
            sums = np.asarray(aggregates[np.ix_(np.flatnonzero(rounds), entries)], dtype=np.float64)
            updates[np.ix_(chosen, entries)] = np.linalg.pinv(X) @ sums


def _places(traces: Traces) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offset and width of every row."""
    first = [block.offset + block.width * np.arange(block.rows) for block in traces.blocks]
    width = [np.full(block.rows, block.width) for block in traces.blocks]
    return np.concatenate(first), np.concatenate(width)


def _same(values: NDArray[np.int64]) -> bool:
    return bool((values == values[0]).all())

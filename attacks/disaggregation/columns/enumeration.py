"""Enumeration of all columns that meet a client's constraints, for clients that seldom take part.

A client with n ones in windows of ten rounds has about 10ⁿ columns with its counts. Its windows are split
into two halves (meet in the middle). For each half all columns are enumerated. A pair of half columns lies in
the space if the parts outside the space cancel. Along one direction orthogonal to the space that is a search
in sorted numbers, so that two lists of h half columns cover h² columns. Pairs that cancel there are tested in
full.

With hardly more rounds than clients several columns may meet all constraints. They are equally likely: given
its count in a window, a client is as likely to have taken part in any of the window's rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.certificate import ANGLE_SAFETY, LEAST_ANGLE

MOST_PER_HALF = 1 << 20
"""Columns of one half; a client with more is not enumerated."""
MOST_ENUMERATED = 1 << 12
"""Columns of one client; enumeration stops there."""
MOST_PAIRS = 1 << 22
"""Pairs that cancel along the first direction; a client with more is not enumerated."""
DIRECTIONS = 3
"""Directions along which pairs are tested before the full test."""


class Enumeration:
    """The columns of the space that have a client's exact counts.

    A column is inside the space up to the tolerance of a certificate (`ANGLE_SAFETY` times the angle). So if
    there is only one, that is a proof, provided that the space holds every client's column.
    """

    def __init__(self, instance: Instance) -> None:
        self.windows, self.U = instance.windows, instance.subspace.basis
        self.near = ANGLE_SAFETY * max(instance.subspace.angle, LEAST_ANGLE)

    def columns(self, client: int) -> NDArray[np.uint8] | None:
        """(n, rounds) all of them, or MOST_ENUMERATED; None if there are too many, or counts are missing."""
        spans = self._spans(client)
        halves = None if spans is None else _halves(spans)
        if spans is None or halves is None:
            return None
        reach = self.near * np.sqrt(sum(span.count for span in spans))
        first, *others = self._directions
        left, right = halves
        pairs = _cancelling(left.sums(first), right.sums(first), reach)
        if pairs is None:
            return None
        i, j = pairs
        for direction in others:
            cancel = np.abs(left.sums(direction)[i] + right.sums(direction)[j]) <= reach
            i, j = i[cancel], j[cancel]
        listed = [np.zeros((0, len(self.U)), dtype=np.uint8)]
        for start in range(0, len(i), MOST_ENUMERATED):
            block = slice(start, start + MOST_ENUMERATED)
            listed.append(self._inside(np.hstack((left.ones(i[block]), right.ones(j[block]))), client, reach))
            if sum(map(len, listed)) >= MOST_ENUMERATED:
                break
        return np.concatenate(listed)[:MOST_ENUMERATED]

    def _inside(self, ones: NDArray[np.intp], client: int, reach: float) -> NDArray[np.uint8]:
        """The columns with ones in the rounds `ones` (n, number) that meet all constraints."""
        columns = np.zeros((len(ones), len(self.U)), dtype=np.uint8)
        np.put_along_axis(columns, ones, 1, axis=1)
        outside = columns - (columns @ self.U) @ self.U.T
        columns = columns[np.linalg.norm(outside, axis=1) <= reach]
        met = self.windows.of(np.full(len(columns), client)).meet(columns)
        return np.asarray(columns[met])

    @cached_property
    def _directions(self) -> NDArray[np.float64]:
        """(n, rounds) random unit vectors that are orthogonal to the space."""
        Z = np.random.default_rng(0).standard_normal((len(self.U), DIRECTIONS))
        Z -= self.U @ (self.U.T @ Z)
        return np.ascontiguousarray((Z / np.linalg.norm(Z, axis=0)).T)

    def _spans(self, client: int) -> list[_Span] | None:
        """The client's windows; None if some rounds have no exact count."""
        windows = self.windows
        index, count = windows.index[0 if windows.shared else client], windows.count[client]
        inside = index < windows.rounds
        used = inside.any(axis=1) & ~np.isnan(count) & (windows.sd[client] == 0)
        if inside[used].sum() < windows.rounds:
            return None
        return [_Span(index[w][inside[w]], int(count[w])) for w in np.flatnonzero(used)]


@dataclass(frozen=True, eq=False)
class _Span:
    """A window: its rounds, and the number of ones among them."""

    rounds: NDArray[np.intp]
    count: int

    @property
    def size(self) -> int:
        return comb(len(self.rounds), self.count)

    @cached_property
    def options(self) -> NDArray[np.intp]:
        """(size, count) the rounds of the ones."""
        return np.array(list(combinations(self.rounds.tolist(), self.count)), dtype=np.intp)


@dataclass(frozen=True, eq=False)
class _Half:
    """Some of the windows. Its columns are numbered like digits: the last window changes fastest."""

    spans: list[_Span]

    @property
    def size(self) -> int:
        return prod(span.size for span in self.spans)

    def sums(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """(size,) the inner products of all columns with a direction."""
        sums = np.zeros(1)
        for span in self.spans:
            sums = np.add.outer(sums, direction[span.options].sum(axis=1)).ravel()
        return sums

    def ones(self, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """(n, ones) the rounds in which the `chosen` columns have their ones."""
        places = np.unravel_index(chosen, [span.size for span in self.spans]) if self.spans else ()
        listed = [span.options[place] for span, place in zip(self.spans, places, strict=True)]
        return np.hstack([np.zeros((len(chosen), 0), dtype=np.intp), *listed])


def _halves(spans: list[_Span]) -> tuple[_Half, _Half] | None:
    """The windows in two parts with about equally many columns; None if these are too many."""
    halves = _Half([]), _Half([])
    for span in sorted(spans, key=lambda span: -span.size):
        min(halves, key=lambda half: half.size).spans.append(span)
    return halves if max(half.size for half in halves) <= MOST_PER_HALF else None


def _cancelling(
    a: NDArray[np.float64], b: NDArray[np.float64], reach: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Positions in a and b of all pairs whose sum is within `reach` of zero; None if these are too many."""
    order_a, order_b = np.argsort(a), np.argsort(-b)
    wanted, offered = a[order_a], -b[order_b]
    first = np.searchsorted(offered, wanted - reach, side="left")
    number = np.searchsorted(offered, wanted + reach, side="right") - first
    if number.sum() > MOST_PAIRS:
        return None
    each = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    return order_a.repeat(number), order_b[first.repeat(number) + each]

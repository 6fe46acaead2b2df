"""The disaggregation problem: sums of updates, and what was published about who took part.

A problem is checked when it is made. A contradiction is the caller's mistake and raises. A column that cannot
be recovered is a result of the attack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation.counts.intervals import WindowsError
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.space.mapped_memory import release_pages

ROWS_PER_CHECK = 256
"""Rounds that are checked at a time, because aggregates may be memory-mapped."""

SMALLEST_FLOAT32 = float(np.finfo(np.float32).smallest_subnormal)
LARGEST_ENTRY = 1e30
"""Bounds of the largest entry: updates, and sums over all rounds, have single precision."""


class ProblemError(ValueError):
    """A problem that contradicts itself; the message names the field, the value and what was expected."""


class NotFiniteError(ProblemError):
    """A sum that is infinite or not a number; `row` is its round."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, eq=False)
class DisaggregationProblem:
    """Find P (rounds × clients, 0/1) and G (clients × dim) with `aggregates` = P G + noise.

    `aggregates` (rounds, dim) is any real array, memory-mapped or not; it is never copied as a whole.
    `counts` says how often each client took part in its windows; without counts (None) the columns of P have
    no names. `num_clients` is the number of clients in the sums. None means the clients of the report, or
    without a report the number that the spectrum suggests. It may exceed the report's clients (some never
    answered and have no name), but not fall below them. `cohort_sizes` (rounds,) is the number of clients in
    each sum, if the server knows it. `layer_shapes` are the shapes of the model's tensors in the order of the
    coordinates, output dimension first; under noise they make coordinates comparable. `places` (rounds, any)
    are coordinates of the server's model at the start of each round, if the server keeps them: under noise
    they tell how all updates turn with the model. `lost` is the share of the counted participations that are
    in no sum; the counts then have an error that allows for it.
    """

    aggregates: NDArray[Any]
    counts: ParticipationReport | None
    num_clients: int | None = field(default=None, kw_only=True)
    cohort_sizes: ArrayLike | None = field(default=None, kw_only=True)
    layer_shapes: Sequence[tuple[int, ...]] | None = field(default=None, kw_only=True)
    places: NDArray[np.float64] | None = field(default=None, kw_only=True)
    lost: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        _check_aggregates(self.aggregates)
        self._check_num_clients()
        if self.counts is not None:
            self._check_counts(self.counts)
        if self.cohort_sizes is not None:
            object.__setattr__(self, "cohort_sizes", self._checked_cohort_sizes())
        if self.layer_shapes is not None:
            self._check_layer_shapes(self.layer_shapes)
        if self.places is not None and (
            self.places.shape[:1] != (self.rounds,) or not np.isfinite(self.places).all()
        ):
            raise ProblemError(
                f"places: shape {self.places.shape}, expected finite numbers for each of {self.rounds} rounds"
            )

    @property
    def rounds(self) -> int:
        """Number of sums."""
        return int(self.aggregates.shape[0])

    @property
    def dim(self) -> int:
        """Entries of one update."""
        return int(self.aggregates.shape[1])

    @property
    def clients(self) -> NDArray[np.generic]:
        """Ids of the clients that have a column, in order; positions if there is no report."""
        return np.arange(self.num_clients or 0) if self.counts is None else self.counts.clients

    @property
    def has_counts(self) -> bool:
        """Whether at least one count is known."""
        return self.counts is not None and not np.isnan(self.counts.count).all()

    @cached_property
    def windows(self) -> Windows:
        """The counts as disjoint windows, one row per client: see `Windows`."""
        if self.counts is None:
            return Windows.none(rounds=self.rounds, clients=len(self.clients))
        try:
            return Windows.from_report(self.counts, self.rounds)
        except WindowsError as error:
            raise ProblemError(f"counts: {error}") from error

    def _check_num_clients(self) -> None:
        if self.num_clients is None:
            return
        if self.num_clients < 1:
            raise ProblemError(f"num_clients: {self.num_clients} is not a number of clients (1 or more)")
        if self.counts is not None and self.num_clients < len(self.counts.clients):
            raise ProblemError(
                f"num_clients: {self.num_clients} is fewer than the {len(self.counts.clients)} in the counts"
            )

    def _check_counts(self, counts: ParticipationReport) -> None:
        if len(counts.clients) == 0:
            raise ProblemError("counts: no client in the report; leave it out where there are no counts")
        beyond = counts.stop > self.rounds
        if beyond.any():
            row = counts.describe_row(int(np.argmax(beyond)))
            raise ProblemError(f"counts: {row}: there are only {self.rounds} rounds of aggregates")
        _ = self.windows  # makes windows disjoint, and so finds contradictions between counts

    def _check_layer_shapes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        for shape in shapes:
            if any(side < 1 for side in shape):
                raise ProblemError(f"layer_shapes: {shape} is not the shape of a tensor (sides of 1 or more)")
        entries = sum(math.prod(shape) for shape in shapes)
        if entries != self.dim:
            raise ProblemError(
                f"layer_shapes: {entries} entries in all, expected the {self.dim} of an update"
            )

    def _checked_cohort_sizes(self) -> NDArray[np.int64]:
        sizes = np.asarray(self.cohort_sizes)
        if sizes.shape != (self.rounds,):
            raise ProblemError(
                f"cohort_sizes: shape {sizes.shape}, expected one for each of {self.rounds} rounds"
            )
        limit = self.num_clients or (len(self.clients) if self.counts is not None else np.inf)
        with np.errstate(invalid="ignore"):
            bad = ~((sizes == np.round(sizes)) & (sizes >= 0) & (sizes <= limit))
        if bad.any():
            round_ = int(np.argmax(bad))
            raise ProblemError(
                f"cohort_sizes: {sizes[round_]} in round {round_}, expected a whole number from 0 to the "
                f"{limit} clients{'' if self.num_clients else ' of the counts (or say that there are more)'}"
            )
        return sizes.astype(np.int64)


def _check_aggregates(aggregates: NDArray[Any]) -> None:
    if not isinstance(aggregates, np.ndarray) or aggregates.ndim != 2:
        shape = getattr(aggregates, "shape", type(aggregates).__name__)
        raise ProblemError(f"aggregates: {shape}, expected two dimensions: rounds × entries of a sum")
    if 0 in aggregates.shape:
        raise ProblemError(f"aggregates: shape {aggregates.shape}, expected at least one round and one entry")
    if aggregates.dtype.kind not in "fiu":
        raise ProblemError(f"aggregates: dtype {aggregates.dtype}, expected real numbers")
    if aggregates.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise ProblemError(f"aggregates: dtype {aggregates.dtype}, expected at most 64 bits")
    largest = 0.0
    for start in range(0, len(aggregates), ROWS_PER_CHECK):
        block = aggregates[start : start + ROWS_PER_CHECK]
        size = np.maximum(block.max().astype(np.float64), -block.min().astype(np.float64))
        if not np.isfinite(size):
            row, column = np.argwhere(~np.isfinite(block))[0]
            value = block[row, column]
            raise NotFiniteError(
                f"aggregates: {value} in round {start + row}, entry {column}; expected finite numbers",
                start + int(row),
            )
        largest = max(largest, float(size))
        release_pages(aggregates)
    if largest and not SMALLEST_FLOAT32 <= largest <= LARGEST_ENTRY:
        raise ProblemError(
            f"aggregates: the largest entry is {largest:.3g}, expected one that fits into 32 bits "
            f"({SMALLEST_FLOAT32:.1g} to {LARGEST_ENTRY:.0g}): scale the sums"
        )

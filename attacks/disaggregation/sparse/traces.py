"""Which rows of the model moved in which rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.mapped_memory import MAPPED_BYTES, release_pages

TALL = 2
"""Least number of rows per column of a tensor that is looked at: tables of vectors are tall."""
LEAST_ZEROS = 0.1
"""Least share of (row, round) pairs in which a row stood still. A row of another kind of layer, such as a
unit that is silent for some clients, stands still now and then."""
FIRST_LOOK = 8
"""Rounds after which a tensor without any zero row is left alone."""


@dataclass(frozen=True)
class RowBlock:
    """A tensor (rows, width) of the model, at an offset in the vector of all parameters."""

    offset: int
    rows: int
    width: int


@dataclass(frozen=True, eq=False)
class Traces:
    """The rows of some `blocks`, one block after the other, and the rounds in which each moved.

    `patterns` (n, rounds) bool are the different sets of rounds; `pattern_of` (rows,) is the pattern of each
    row, and `support` (n,) the number of rows with a pattern.
    """

    blocks: tuple[RowBlock, ...]
    patterns: NDArray[np.bool_]
    pattern_of: NDArray[np.intp]
    support: NDArray[np.int64]

    @classmethod
    def of(cls, moved: NDArray[np.bool_], blocks: tuple[RowBlock, ...] = ()) -> Traces:
        """From a table (rows, rounds) of who moved when."""
        packed = np.packbits(moved, axis=1)
        keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, pattern_of, support = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(blocks, moved[first], pattern_of.ravel(), support.astype(np.int64))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(n,) in how many rounds each pattern moved."""
        return np.asarray(self.patterns.sum(axis=1, dtype=np.int64))

    @cached_property
    def varying(self) -> NDArray[np.bool_]:
        """(n,) patterns that moved in some rounds and stood still in others."""
        return np.asarray((self.sizes > 0) & (self.sizes < self.sizes.max(initial=0)))


def find_traces(problem: DisaggregationProblem) -> Traces | None:
    """The traces in a problem's sums; None if no tensor has rows that move now and then.

    The layout of the model is the server's own. There have to be at least as many patterns as clients.
    """
    tables = [(block, moved) for block in _tall(problem) if (moved := _moved(problem, block)) is not None]
    if not tables:
        return None
    traces = Traces.of(np.concatenate([moved for _, moved in tables]), tuple(block for block, _ in tables))
    return traces if traces.varying.sum() >= max(2, len(problem.clients)) else None


def _tall(problem: DisaggregationProblem) -> list[RowBlock]:
    offset, found = 0, []
    for shape in problem.layer_shapes or ():
        if len(shape) == 2 and shape[0] >= TALL * shape[1]:
            found.append(RowBlock(offset, shape[0], shape[1]))
        offset += math.prod(shape)
    return found


def _moved(problem: DisaggregationProblem, block: RowBlock) -> NDArray[np.bool_] | None:
    """(rows, rounds) whether a row moved; None if its rows hardly ever stand still."""
    A = problem.aggregates
    moved = np.empty((problem.rounds, block.rows), dtype=np.bool_)
    at_once = max(1, MAPPED_BYTES // max(1, A.itemsize * A.shape[1]))
    looked_at = 0
    for start in range(0, len(A), at_once):
        part = A[start : start + at_once, block.offset : block.offset + block.rows * block.width]
        moved[start : start + at_once] = part.reshape(-1, block.rows, block.width).any(axis=2)
        release_pages(A)
        looked_at += len(part)
        if looked_at >= FIRST_LOOK and moved[:looked_at].any(axis=1).sum() >= FIRST_LOOK:
            active = moved[:looked_at][moved[:looked_at].any(axis=1)]
            if active.all():
                return None
    active = moved[moved.any(axis=1)]
    if not len(active) or 1 - active.mean() < LEAST_ZEROS:
        return None
    return np.ascontiguousarray(moved.T)

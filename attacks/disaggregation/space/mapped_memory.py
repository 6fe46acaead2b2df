"""Reading aggregates that are larger than memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

SLICE_ENTRIES = 1 << 24
"""Entries of the aggregates in one slice (128 MB in double precision)."""
SMALL_SLICE_ENTRIES, LEAST_WIDTH = 1 << 20, 1 << 12
"""Entries of a small slice (8 MB), unless it would be narrower than a page of the file in every round."""
MAPPED_BYTES = 1 << 26
"""Bytes of a memory-mapped array that are in memory at a time."""


def slices(A: NDArray[Any], dtype: DTypeLike = np.float64) -> Iterator[NDArray[Any]]:
    """Column slices (rounds, some) of A in the given precision, left to right."""
    return _slices(A, SLICE_ENTRIES // len(A), dtype)


def small_slices(A: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """The same in double precision, in slices that fit into memory that is used again and again.

    Where little is computed for each entry, finding new memory for large slices takes most of the time.
    """
    width = max(SMALL_SLICE_ENTRIES // len(A), LEAST_WIDTH)
    return _slices(A, min(width, SLICE_ENTRIES // len(A)), np.float64)


def _slices(A: NDArray[Any], width: int, dtype: DTypeLike) -> Iterator[NDArray[Any]]:
    width = max(1, width)
    for start in range(0, A.shape[1], width):
        yield in_memory(A[:, start : start + width], A, dtype)


def in_memory(view: NDArray[Any], A: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """A copy of `view`, which holds some columns of all rows of A.

    The copy is made a few rows at a time. A column needs little of a memory-mapped file, but the system also
    maps the pages around it, and in the end the whole file.
    """
    copy = np.empty(view.shape, dtype)
    rows = max(1, MAPPED_BYTES // max(1, A.itemsize * A.shape[1]))
    for start in range(0, len(view), rows):
        copy[start : start + rows] = view[start : start + rows]
        release_pages(A)
    return copy


def release_pages(A: NDArray[Any]) -> None:
    """Return the pages of a read-only memory-mapped array to the system; leave any other array alone.

    Pages stay mapped after they are read, until memory is short elsewhere. A pass over the array would need
    as much memory as a copy of it. A released page is read again when it is needed.
    """
    source: object = A.base
    if isinstance(A, np.memmap) and A.mode == "r" and isinstance(source, mmap.mmap):
        source.madvise(mmap.MADV_DONTNEED)

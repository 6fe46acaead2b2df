"""Reading sums that are larger than memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

MAPPED_BYTES = 1 << 26
"""How much of a memory-mapped array is in memory at a time."""


def in_memory(view: NDArray[Any], A: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """A copy of a view of A that has all of A's rows, and some of its columns.

    A few rows at a time: what a column needs of a memory-mapped array is next to nothing, but the system
    maps the neighbourhood too, and in the end the whole file.
    """
    copy = np.empty(view.shape, dtype)
    rows = max(1, MAPPED_BYTES // max(1, A.itemsize * A.shape[1]))
    for start in range(0, len(view), rows):
        copy[start : start + rows] = view[start : start + rows]
        let_go(A)
    return copy


def let_go(A: NDArray[Any]) -> None:
    """Give back the pages that reading a memory-mapped array has brought into this process.

    What was read once stays mapped until memory is short elsewhere, so that a pass over the array would
    need as much memory as a copy of it. Pages that are read again come back, unchanged. Any other array
    is left alone.
    """
    source: object = A.base
    if isinstance(A, np.memmap) and A.mode == "r" and isinstance(source, mmap.mmap):
        source.madvise(mmap.MADV_DONTNEED)

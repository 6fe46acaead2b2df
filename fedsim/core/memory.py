"""Memory that a process has freed: kept for its next need, or returned to the system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of glibc's settings, from malloc.h."""
_KEPT = 1 << 30
"""Freed bytes at the end of the heap that are kept."""
_LARGEST_KEPT = 1 << 25
"""Larger pieces come from the system and go back to it; glibc allows no more."""


def keep_freed_memory() -> None:
    """Keep up to 1 GB of freed memory, in pieces of up to 32 MB, if the C library is glibc.

    A step of training frees what it took. Otherwise glibc returns it to the system after every step, and the
    system clears and maps it again, page by page.
    """
    if sys.platform != "linux":
        return
    # Other C libraries have no such function, or ignore it.
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)

"""Compiled loops that are kept on disk, and compiled anew when any source that they are made of changes."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., Any])


class _SourcesCache(FunctionCache):
    """numba's cache of a function, whose stamp also holds a digest of sources.

    numba's own stamp is the date and size of the file that defines the function. It misses changes in other
    files, such as instructions that are imported, and files that were copied with their dates.
    """

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file._source_stamp = (self._cache_file._source_stamp, digest)

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep a compiled function, unless this process must not write files, as an attack's must not."""
        with suppress(PermissionError):
            super().save_overload(signature, data)  # type: ignore[no-untyped-call]


def compiled(*sources: ModuleType, **options: Any) -> Callable[[F], F]:
    """`numba.njit(**options)` that keeps its result on disk.

    `sources` are the modules, besides the function's own, whose code or constants end up in the loop. The
    result is kept beside the function's file, or in the user's cache folder if that is read-only. If neither
    can be written to, every process compiles for itself.
    """

    def decorate(function: F) -> F:
        dispatcher: Any = numba.njit(**options)(function)
        digest = _digest(sys.modules[function.__module__], *sources)
        # numba raises a RuntimeError if it finds no folder to write to; the dispatcher then keeps nothing.
        with suppress(RuntimeError):
            dispatcher._cache = _SourcesCache(function, digest)
        return cast(F, dispatcher)

    return decorate


def _digest(*modules: ModuleType) -> str:
    digest = hashlib.sha256()
    for module in modules:
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()

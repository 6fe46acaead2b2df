"""Which code is the user's own: the modules that a scenario names, such as a custom network.

An exception that passes through such a module is the user's to mend, wherever it surfaces: in training, in an
evaluation, or in an attack.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import ModuleType

_files: set[str] = set()


def mark_as_users(module: ModuleType) -> None:
    """Remember that a module was written by the user."""
    if module.__file__ is not None:
        _files.add(module.__file__)


def fault_of_users_code(error: BaseException) -> str | None:
    """One line that names the user's file and line; None if no marked module was involved."""
    frames = list(traceback.extract_tb(error.__traceback__))
    if not isinstance(error, Exception):
        # Signals end any code that happens to run. It is to blame only if it called sys.exit itself.
        frames = frames[-1:]
    for frame in reversed(frames):
        if frame.filename in _files:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            return f"{Path(frame.filename).name}, line {frame.lineno}: {reason}"
    return None

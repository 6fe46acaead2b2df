"""Interruptions of long work: one line says how to continue."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TERMINATED = 128 + signal.SIGTERM
"""Exit status of a process that SIGTERM ended, as shells count it."""


class StoppedError(Exception):
    """Ctrl-C; the message is one line."""


def this_command(*, without: tuple[str, ...] = (), plus: tuple[str, ...] = ()) -> str:
    """The current command as a user would type it."""
    return shlex.join(["fedsim", *(a for a in sys.argv[1:] if a not in without), *plus])


@contextmanager
def told(advice: str = "") -> Iterator[None]:
    """Turn Ctrl-C in the block into a `StoppedError` with the advice; print the advice after SIGTERM."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(f"interrupted{advice}") from error
    except SystemExit as error:
        if error.code == _TERMINATED:
            print(f"fedsim: terminated{advice}", file=sys.stderr)
        raise


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that cleanup runs and no child process is left."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""What ends long work before its time and is no fault: it is told in one line that says how to go on."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STATUS = 130
"""The exit status after Ctrl-C, as shells have it."""


class StoppedError(Exception):
    """Ctrl-C; the message is one line."""


def this_command(*, without: tuple[str, ...] = (), plus: tuple[str, ...] = ()) -> str:
    """The command under way as one would type it."""
    return shlex.join(["fedsim", *(a for a in sys.argv[1:] if a not in without), *plus])


@contextmanager
def told(advice: str = "") -> Iterator[None]:
    """Ctrl-C in the block becomes a `StoppedError` with the advice."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(f"interrupted{advice}") from error


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the block as Ctrl-C does: what was begun is tidied up, and no process outlives it."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

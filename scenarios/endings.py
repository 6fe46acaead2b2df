"""How a command ends: its exit status, and the line that it prints.

This is the only place that turns an exception into a status. The exceptions that it does not know are faults
of the program: they pass, and Python prints their traceback.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import FrameType
from typing import NoReturn

import click
import typer

from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.users_code import fault_of_users_code
from scenarios.interruptions import StoppedError


class Status(IntEnum):
    """The exit statuses of `fedsim`. docs/exit-status.md explains them to users."""

    DONE = 0
    FAULT = 1
    MISTAKE = 2
    OUTSIDE = 3
    INTERRUPTED = 130


EXIT_STATUS_HELP = (
    "Exit status: 0 done, whatever the attack achieved; 1 a fault of fedsim; 2 a mistake in the input; "
    "3 a reason outside fedsim, such as a full disk, too little memory or a diverged training; "
    "130 interrupted."
)

_REASONS_OUTSIDE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.EISDIR,  # a folder stands in the place of a file
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,  # no further process or thread may be started
    }
)
"""What the operating system refuses for reasons that no scenario and no line of code can change."""

_TORCH_MEMORY = "can't allocate memory"
_NO_THREAD = "can't start new thread"


def ending(error: BaseException) -> tuple[Status, str] | None:
    """The status and the line for an exception; None if it is a fault of the program."""
    if (blame := fault_of_users_code(error)) is not None and not isinstance(error, UserError):
        return Status.MISTAKE, blame
    for status, line in (
        (Status.MISTAKE, _mistake),
        (Status.OUTSIDE, _outside),
        (Status.INTERRUPTED, _stopped),
    ):
        if (message := line(error)) is not None:
            return status, message
    return None


def _mistake(error: BaseException) -> str | None:
    match error:
        case click.ClickException():
            return error.format_message()
        case UserError():
            return str(error)
        case OSError(errno=errno.ENAMETOOLONG):
            return f"{error.filename!s:.40}…: {error.strerror}"
    return None


def _outside(error: BaseException) -> str | None:
    match error:
        case RunFailedError():
            return str(error)
        case MemoryError():
            return f"not enough memory: {error}".removesuffix(": ")
        case RuntimeError() if _TORCH_MEMORY in str(error):
            return f"not enough memory: {str(error).rpartition(_TORCH_MEMORY + ': ')[-1]}"
        case RuntimeError() if _NO_THREAD in str(error):
            return f"{error}: the system allows no more of them"
        case OSError(errno=number) if number in _REASONS_OUTSIDE:
            return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return None


def _stopped(error: BaseException) -> str | None:
    match error:
        case StoppedError():
            return str(error)
        case KeyboardInterrupt() | click.Abort():
            return "interrupted"
    return None


def end(status: Status, message: str) -> NoReturn:
    """Print one line and exit."""
    # A message that quotes a file may quote its line breaks.
    typer.echo("fedsim: " + " ".join(message.splitlines()), err=True)
    # The line has been said: what was printed before it must not end in another one at exit.
    with suppress(RunFailedError):
        flush_output()
    sys.exit(status)


def flush_output() -> None:
    """Write out what was printed, so that a full disk behind `>` is noticed in time for a line about it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()  # the reader, such as `head`, has seen enough
    except OSError as error:
        _discard_output()
        raise RunFailedError(f"standard output: {error.strerror}") from error


def _discard_output() -> None:
    """What could not be written is tried again at exit; let that succeed."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def first_ctrl_c_unwinds() -> Iterator[None]:
    """A block that the first Ctrl-C ends in good order, and a second one at once.

    A process that was interrupted is about to end: a Ctrl-C after the block ends it at once, too.
    """

    def first(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, second)
        raise KeyboardInterrupt

    def second(number: int, frame: FrameType | None) -> NoReturn:
        os.write(2, b"fedsim: interrupted\n")
        os._exit(Status.INTERRUPTED)

    def after_the_line(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(Status.INTERRUPTED)

    before = signal.getsignal(signal.SIGINT)
    # A background job of a shell ignores Ctrl-C, and goes on doing so.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        interrupted = signal.getsignal(signal.SIGINT) is second
        signal.signal(signal.SIGINT, after_the_line if interrupted else before)

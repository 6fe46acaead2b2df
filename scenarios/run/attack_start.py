"""Starts the process of the attacks. It imports the standard library only, so that a command can do it first.

The process imports its own modules and waits: it is told later which files it may open, and what to attack.
Until then it has seen nothing.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, eq=False)
class StartedProcess:
    """A process that serves attacks, and this side's end of its channel."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    scratch: tempfile.TemporaryDirectory[str]
    """Its working folder; `attacks.process.keeper` removes it if this process cannot."""
    owner: int
    """The process that started it."""
    modules_from: tuple[Path, ...]

    @classmethod
    def start(cls) -> StartedProcess:
        """Start one that finds the same modules as this process does."""
        scratch = tempfile.TemporaryDirectory(prefix="fedsim-attack-")
        ours, theirs = socket.socketpair()
        # Imports make many objects and no garbage: looking for it takes a fifth of their time.
        program = (
            f"from attacks.process.keeper import keep; keep({scratch.name!r}); "
            "import gc; gc.disable(); from attacks.process.serve import main; gc.enable(); "
            f"main({theirs.fileno()})"
        )
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                cwd=scratch.name,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, search_path())),
                    "TMPDIR": scratch.name,
                },
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Ctrl-C reaches this side, which ends the other one.
                start_new_session=True,
            )
        return cls(process, ours, scratch, os.getpid(), search_path())

    @property
    def is_ours(self) -> bool:
        """Whether it runs and belongs to this process, not to its parent."""
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        """End it and its sessions, if they are this process's own."""
        if self.channel.fileno() < 0:
            return  # closed before
        self.channel.close()
        if self.owner == os.getpid():
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.scratch.cleanup()


def search_path() -> tuple[Path, ...]:
    """Where this process finds modules: the attack finds the same ones."""
    return tuple(Path(entry or ".").resolve() for entry in sys.path)


_ahead: StartedProcess | None = None


def start_ahead() -> None:
    """Start a process that the first attack will be given, beside whatever comes before it."""
    global _ahead  # noqa: PLW0603
    if _ahead is None:
        _ahead = StartedProcess.start()
        atexit.register(_ahead.close)


def started_process() -> StartedProcess:
    """The process that was started ahead, or a new one."""
    global _ahead
    ahead, _ahead = _ahead, None
    if ahead is not None:
        if ahead.is_ours and ahead.modules_from == search_path():
            return ahead
        ahead.close()
    return StartedProcess.start()

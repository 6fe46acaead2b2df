"""How a command ends on damaged input, and what is wrong about it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.fuzzing.damages import Case

CPU_LIMIT_S = 60
"""Processor time of a command. The inputs are tiny: without damage, commands take some seconds."""
HANG_S = 300
"""A command that takes longer hangs. The limit is long, because other programs may keep the cores busy."""
MEMORY_LIMIT = 16 << 30
"""Bytes of address space for a command."""


@dataclass(frozen=True)
class Ending:
    """How a command ended. `fault` says what is wrong about it, and is empty if nothing is."""

    status: int | str
    stderr: str
    fault: str


def try_case(case: Case) -> Ending:
    """Run the command of a case on its damaged input, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fedsim-fuzz-") as name:
        folder = Path(name)
        for file, content in case.kind.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        with contextlib.suppress(zipfile.BadZipFile):
            case.damage(folder / case.file)
        if case.sealed_again and case.kind.name.startswith("run"):
            _seal_again(folder / "run")
        before = _names(folder)
        status, stderr = _run(case.kind.command, folder)
        return Ending(status, stderr, _fault(status, stderr, sorted(_names(folder) - before)))


def _seal_again(run: Path) -> None:
    """Compute the digests of a run again, if its files can be read at all."""
    from fedsim.core.errors import UserError
    from scenarios.run.directory import RunDirectory

    if all(path.is_file() or path.is_dir() for path in run.rglob("*")):
        with contextlib.suppress(OSError, UserError), RunDirectory(run).sealed():
            pass


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _fault(status: int | str, stderr: str, new: list[str]) -> str:
    """What is wrong about an ending; empty if nothing is."""
    lines = stderr.splitlines()
    if status not in {0, 2, 3}:
        return f"status {status}: {lines[-1] if lines else 'not a word'}"
    if status != 0 and (len(lines) != 1 or not stderr.startswith("fedsim: ")):
        return f"{len(lines)} lines: {lines[-1] if lines else ''}"
    if status == 2 and new:
        return f"left {', '.join(new)} behind"
    if any(".fedsim-part" in name for name in new):
        return f"left a half-written file behind: {', '.join(new)}"
    return ""


def _run(command: tuple[str, ...], folder: Path) -> tuple[int | str, str]:
    """The exit status of a command, or a word if it has none, and what it wrote to stderr."""
    # Forked, so that imports are paid for once; torch runs one thread here, so forking is safe.
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            _be_the_command(command, folder, stderr.fileno())
        status = _waited_for(child)
        stderr.seek(0)
        return status, stderr.read().decode(errors="replace")


def _be_the_command(command: tuple[str, ...], folder: Path, stderr: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(stderr, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["fedsim", *command]
        from scenarios.cli import main

        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _waited_for(child: int) -> int | str:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            _kill_group(child)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else signal.Signals(-code).name
        time.sleep(0.005)
    _kill_group(child)
    os.waitpid(child, 0)
    return "hang"


def _kill_group(child: int) -> None:
    """End whatever processes the command has left."""
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise

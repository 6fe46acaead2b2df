"""One process at a time works in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fedsim.core.errors import UserError

LOCK_FILE = ".lock"
"""Its name in a locked folder. It is removed with the lock; a killed process leaves it, without the lock."""

_held: set[tuple[int, Path]] = set()
"""Process and folder of every lock: the system's locks do not stop a process from locking a folder twice."""


@contextmanager
def alone_in(folder: Path, *, create: bool = False) -> Iterator[None]:
    """Nobody else works in this folder during the block; a `UserError` if somebody does.

    The lock is the system's, so it ends with the process, however that ends. Processes that are forked from
    this one do not inherit it. A folder that does not exist is created if `create` says so. Otherwise there
    is nothing to lock, and the block finds out; the same holds for a path that is not a folder.
    """
    new = create and not folder.exists()
    if new:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {folder}: cannot be written to: {error.strerror}") from error
    if not folder.is_dir():
        yield
        return
    mine = os.getpid(), folder.resolve()
    if mine in _held:
        raise _busy(folder)
    try:
        file = _locked(folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to: {error.strerror}") from error
    _held.add(mine)
    try:
        yield
    finally:
        _held.discard(mine)
        (folder / LOCK_FILE).unlink(missing_ok=True)
        file.close()
        if new and not any(folder.iterdir()):
            folder.rmdir()


def _locked(folder: Path) -> IO[str]:
    """The open and locked file; closing it ends the lock."""
    while True:
        file = (folder / LOCK_FILE).open("w")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            file.close()
            raise _busy(folder) from error
        # The process that held the lock before may have removed the file since it was opened here.
        if _is_named(file, folder / LOCK_FILE):
            return file
        file.close()


def _is_named(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _busy(folder: Path) -> UserError:
    return UserError(f"{folder}: another process is working there: wait for it, or choose another folder")


def is_busy(folder: Path) -> bool:
    """Whether another process works in the folder; looking at it changes nothing."""
    try:
        with (folder / LOCK_FILE).open() as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (BlockingIOError, PermissionError):
        return True
    return False

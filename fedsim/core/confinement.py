"""Confine this process to a list of folders, for good.

Linux does it itself (Landlock, since 5.13): whatever this process or its children try, the kernel refuses to
open any other file, and to look into the memory of processes outside. Where the kernel has no Landlock,
Python's own audit hook refuses to open other files. That stops Python code, but not native code that means to
get around it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_SET_NO_NEW_PRIVILEGES = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_EVERY_ACCESS = (1 << 13) - 1
"""All rights over files that the first version of Landlock knows. Later versions add renames across folders,
truncation and device control, none of which reads a file."""
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE
"""The rights that make sense for a single file; the kernel refuses any other."""


class Confinement(StrEnum):
    """Who refuses to open other files."""

    LANDLOCK = "landlock"
    AUDIT_HOOK = "audit hook"


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine(*, listable: Iterable[Path], readable: Iterable[Path], writable: Iterable[Path]) -> Confinement:
    """From now on open files beneath `readable` and `writable` only.

    Folders in `listable` show the names of their files. A path that does not exist is passed over. There is
    no way back, and children inherit it.
    """
    folders = [(path, _READ_DIR) for path in listable]
    folders += [(path, _READ_RIGHTS) for path in readable]
    folders += [(path, _EVERY_ACCESS) for path in writable]
    if _landlock(folders):
        return Confinement.LANDLOCK
    _audit_hook([path for path, access in folders if access & _READ_FILE])
    return Confinement.AUDIT_HOOK


def _landlock(folders: Iterable[tuple[Path, int]]) -> bool:
    """Whether the kernel has taken the rules."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    rules = _Ruleset(_EVERY_ACCESS)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    try:
        for path, access in folders:
            _allow(libc, ruleset, path, access)
        if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl: the process keeps its privileges")
        if libc.syscall(_RESTRICT_SELF, ruleset, 0):
            raise OSError(ctypes.get_errno(), "landlock: the kernel refused the rules")
    finally:
        os.close(ruleset)
    return True


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = _PathBeneath(access if path.is_dir() else access & _FILE_ONLY, descriptor)
        if libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0):
            raise OSError(ctypes.get_errno(), f"landlock: no rule for {path}")
    finally:
        os.close(descriptor)


def _audit_hook(allowed: Iterable[Path]) -> None:
    prefixes = tuple(os.path.realpath(path) for path in allowed)

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not any(path == prefix or path.startswith(prefix + os.sep) for prefix in prefixes):
            raise PermissionError(f"{path} is out of reach for this process")

    sys.addaudithook(refuse)

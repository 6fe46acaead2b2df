"""Which code made a result: the release, and a digest of the sources that decide its figures.

A folder that is filled over weeks holds results of several versions. They are kept, because most changes
change no figure. They are told apart, because some changes do.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from fedsim.core.files import write_text
from fedsim.core.version import installed_version
from scenarios.sweep.imports import import_closure

UNKNOWN_CODE = "unknown"
"""Stands for code that made a result before code was written down."""

_FILE = "code.txt"
_ROOT = Path(__file__).parents[2]
_WORK = "scenarios.sweep.work"
"""The module that makes points. Whatever it needs may decide a figure."""


@cache
def this_code() -> str:
    """The code that runs, such as 0.1.0+55c581db."""
    return f"{installed_version()}+{sources_digest(_ROOT)}"


def sources_digest(root: Path) -> str:
    """Eight characters that stand for every module that making a point needs.

    Comments, docstrings and layout do not count. `root` is the folder that holds our packages.
    """
    digest = hashlib.sha256()
    for module, source in import_closure([_WORK], root).items():
        digest.update(module.encode() + source.digest)
    return digest.hexdigest()[:8]


def add_code(folder: Path, *codes: str) -> None:
    """Note in the folder that this code helped to make its content."""
    write_text(folder / _FILE, "".join(f"{code}\n" for code in dict.fromkeys((*_lines(folder), *codes))))


def code_of(folder: Path) -> str:
    """Every code that helped to make a folder's content."""
    return ", ".join(_lines(folder)) or UNKNOWN_CODE


def _lines(folder: Path) -> Iterator[str]:
    file = folder / _FILE
    if file.exists():
        yield from file.read_text(encoding="utf-8").splitlines()


def other_code(codes: Iterable[str]) -> str:
    """A sentence about results that other code made; empty if there are none."""
    others = Counter(code for code in codes if code and code != this_code())
    if not others:
        return ""
    said = "; ".join(f"{number} by {code}" for code, number in others.items())
    return f"made by other code than this, {this_code()}: {said}; --fresh runs them again"

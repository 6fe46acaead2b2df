"""Which code made a result: the release, and a digest of the sources that decide its figures.

A folder that is filled over weeks holds results of more than one version. They are kept, because most changes
change no figure, and told apart, because some do.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fedsim.core.files import write_text

UNKNOWN = "unknown"
"""Made before code was written down."""

_FILE = "code.txt"
_ROOT = Path(__file__).parents[2]
_DECISIVE = (
    "fedsim/**/*.py",
    "analytics/**/*.py",
    "attacks/**/*.py",
    "scenarios/run/inference/*.py",
    "scenarios/planted.py",
    *(f"scenarios/run/{name}.py" for name in ("runner", "scoring", "simulate", "costs", "world")),
)


@cache
def this_code() -> str:
    """The code that runs, such as 0.1.0+55c581db; comments, docstrings and layout do not count."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _DECISIVE for path in _ROOT.glob(pattern)):
        digest.update(path.relative_to(_ROOT).as_posix().encode())
        digest.update(ast.dump(_without_docstrings(ast.parse(path.read_bytes()))).encode())
    return f"{version('fedsim')}+{digest.hexdigest()[:8]}"


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                node.body = [s for s in node.body if not _is_text(s)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def add_code(folder: Path, *codes: str) -> None:
    """Write down that this code had a part in what the folder holds."""
    write_text(folder / _FILE, "".join(f"{code}\n" for code in dict.fromkeys((*_lines(folder), *codes))))


def code_of(folder: Path) -> str:
    """All the code that had a part in what a folder holds."""
    return ", ".join(_lines(folder)) or UNKNOWN


def _lines(folder: Path) -> Iterator[str]:
    file = folder / _FILE
    if file.exists():
        yield from file.read_text(encoding="utf-8").splitlines()


def other_code(codes: Iterable[str]) -> str:
    """A sentence about results that other code than this made; empty if there are none."""
    others = Counter(code for code in codes if code and code != this_code())
    if not others:
        return ""
    said = "; ".join(f"{number} by {code}" for code, number in others.items())
    return f"made by other code than this, {this_code()}: {said}; --fresh runs them again"

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

from attacks.settings import AttackSettings
from fedsim.core.files import write_text
from fedsim.core.plugins import users_modules
from fedsim.core.settings import Settings
from fedsim.core.users_code import imported
from fedsim.core.version import installed_version
from scenarios.run.scenario import Scenario
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


def code_for(settings: Settings) -> str:
    """The code that makes a point now, from its training to its figures; see `code_of`."""
    return ", ".join(dict.fromkeys((training_code(settings), point_code(settings))))


def point_code(settings: Settings) -> str:
    """Our code, and a digest of the user's own modules if the settings name any."""
    modules = sorted(users_modules(settings))
    return this_code() if not modules else f"{this_code()}+{_users_digest(tuple(modules))}"


def training_code(settings: Settings) -> str:
    """The same without what points that share a training may differ in."""
    if not isinstance(settings, Scenario):
        return point_code(settings)
    analytics = settings.analytics.model_copy(update={"release": ()})
    return point_code(settings.model_copy(update={"attack": AttackSettings(), "analytics": analytics}))


def _users_digest(modules: tuple[str, ...]) -> str:
    """Eight characters that stand for the user's modules, and for what they import from beside them."""
    digest = hashlib.sha256()
    for module in modules:
        top = imported(module.partition(".")[0], said=module)
        if top.__file__ is None:
            continue  # a namespace package has no code of its own
        file = Path(top.__file__)
        root = file.parent.parent if file.name == "__init__.py" else file.parent
        beside = {top.__name__, *(other.stem for other in root.glob("*.py"))}
        for name, source in import_closure([module], root, beside).items():
            digest.update(name.encode() + source.digest)
    return digest.hexdigest()[:8]


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

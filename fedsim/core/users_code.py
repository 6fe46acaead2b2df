"""Which code is the user's own: the modules that a scenario names, such as a custom network.

An exception that passes through such a module is the user's to mend, wherever it surfaces: in training, in an
evaluation, or in an attack.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fedsim.core.errors import UserError

OUR_PACKAGES = ("fedsim", "analytics", "attacks", "scenarios")

_files: set[str] = set()


def is_users(kind: type) -> bool:
    """Whether somebody else wrote a class."""
    return kind.__module__.partition(".")[0] not in OUR_PACKAGES


def module_of(kind: type) -> ModuleType:
    """The module that defines a class."""
    return sys.modules[kind.__module__]


def mark_as_users(module: ModuleType) -> None:
    """Remember that a module was written by the user."""
    if getattr(module, "__file__", None) is not None:
        _files.add(str(module.__file__))


def fault_of_users_code(error: BaseException) -> str | None:
    """One line that names the user's file and line; None if no marked module was involved."""
    frames = list(traceback.extract_tb(error.__traceback__))
    if not isinstance(error, Exception):
        # Signals end any code that happens to run. It is to blame only if it called sys.exit itself.
        frames = frames[-1:]
    for frame in reversed(frames):
        if frame.filename in _files:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            return f"{Path(frame.filename).name}, line {frame.lineno}: {reason}"
    return None


def is_reference(text: str) -> bool:
    """Whether a text has the form `module:attribute`."""
    return re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", text) is not None


def attribute_named(reference: str, *, said: str) -> Any:
    """What `module:attribute` names in the user's code; a `UserError` that begins with `said` if nothing."""
    if not is_reference(reference):
        raise UserError(f"{said}: {reference}: expected module:Class, such as my_module:MyClass")
    module_name, _, attributes = reference.partition(":")
    found: Any = imported(module_name, said=said)
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise UserError(f"{said}: {module_name} has no {attributes!r}")
        found = getattr(found, attribute)
    return found


def imported(name: str, *, said: str) -> ModuleType:
    """A module of the user's own. Python looks for it on its path, then in the current folder."""
    if name == "__main__":
        # Worker processes, and a later `fedsim attack`, would look for the class in their own main module.
        raise UserError(
            f"{said}: {name} is not a module that others can import: put the code into a file of its own"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        # For good: the code may import more when it is called, and worker processes import its module when
        # they unpack its objects. Last on the path, so that a file there hides no package.
        sys.path.append(folder)
    try:
        with no_exit():
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"{said}: there is no module {name!r}, neither where Python looks nor in {folder}"
            ) from error
        raise UserError(f"{said}: {name} cannot be imported: {error}") from error
    except (ImportError, SyntaxError, RuntimeError) as error:
        raise UserError(f"{said}: {name} cannot be imported: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"{said}: {name} cannot be imported: {_reason(error)}") from error
    mark_as_users(module)
    return module


@contextmanager
def one_line(about: str) -> Iterator[None]:
    """Turns an exception of the user's code into a `UserError`."""
    try:
        with no_exit():
            yield
    except UserError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"{about}: {_reason(error)}") from error


@contextmanager
def no_exit() -> Iterator[None]:
    """Turns `sys.exit()` in the user's code into an exception like any other: it must not end the command."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it calls sys.exit({'' if error.code is None else repr(error.code)})") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"

"""Changes of single settings: `KEY=VALUE` texts of a command line, or a mapping from Python."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from fedsim.core.errors import UserError
from fedsim.core.files import parsing

Overrides = Mapping[str, Any] | Iterable[str]
"""Values by dotted key, or texts like `clients.local_epochs=8`."""


def _by_key(content: Any) -> Any:
    """Nested tables, as TOML reads `clients.lr = 1`, by dotted keys. A table with a `name` is one value."""
    return dict(_leaves(content)) if isinstance(content, Mapping) else content


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping) and "name" not in value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


SettingsByKey = Annotated[dict[str, Any], BeforeValidator(_by_key)]
"""A table of settings in a file, by dotted key."""


@dataclass(frozen=True)
class Override:
    """One setting to change; `said` is how the user put it, and begins messages about it."""

    key: str
    value: Any
    said: str

    def apply(self, content: dict[str, Any]) -> None:
        """Change the content of a file."""
        put(content, self.key, self.value, said=self.said)

    def __str__(self) -> str:
        return self.said.removeprefix(_OPTION)


_OPTION = "--set "


def read_overrides(overrides: Overrides) -> tuple[Override, ...]:
    """The overrides in order; one that has no key or no value is a `UserError`."""
    if isinstance(overrides, str):
        raise UserError(f"overrides: {overrides!r}: expected a mapping, or a list of KEY=VALUE")
    if isinstance(overrides, Mapping):
        return tuple(
            Override(key, _plain(value), f"{_OPTION}{key}={value}") for key, value in overrides.items()
        )
    return tuple(map(_read, overrides))


def _read(text: str) -> Override:
    key, equals, value = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UserError(f"{_OPTION}{text}: expected KEY=VALUE, such as clients.local_epochs=8")
    return Override(key.strip(), toml_value(value), f"{_OPTION}{text}")


def _plain(value: Any) -> Any:
    """A value as TOML gives it: settings objects become tables, tuples become lists, paths become texts."""
    match value:
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case str() | int() | float():
            return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    return value.item() if hasattr(value, "item") else str(value)


def change_all(content: dict[str, Any], changes: Iterable[Override]) -> None:
    """Change the content of a scenario; its title tells about it, so that it cannot contradict a setting."""
    changes = tuple(changes)
    for change in changes:
        change.apply(content)
    told = ", ".join(map(str, changes))
    own = any(change.key == "title" for change in changes)  # a title that was just given knows of the others
    if told and not own and isinstance(title := content.get("title"), str):
        content["title"] = f"{title} · {told}"


def apply(content: dict[str, Any], override: str) -> None:
    """Apply an override `KEY=VALUE` to the content of a file."""
    _read(override).apply(content)


def put(content: dict[str, Any], key: str, value: Any, *, said: str) -> None:
    """Set one dotted key in the content of a file. A bare name is expanded to a table with that `name`.

    If the key leads through a value that is no table, the `UserError` begins with `said`.
    """
    *sections, last = key.split(".")
    table: Any = content
    for section in sections:
        table = _below(table, section, said)
    if isinstance(table, list):
        raise UserError(f"{said}: {last} is an entry, expected {key}.KEY=VALUE")
    table[last] = value


def _below(table: Any, section: str, said: str) -> Any:
    """The section of that name, or of that number in a list of sections."""
    if isinstance(table, list):
        if not section.isdecimal() or int(section) >= len(table):
            raise UserError(f"{said}: {section} is not one of 0..{len(table) - 1}")
        below = table[int(section)]
    else:
        below = table.setdefault(section, {})
    if isinstance(below, str):
        below = {"name": below}
        table[int(section) if isinstance(table, list) else section] = below
    if not isinstance(below, dict | list):
        raise UserError(f"{said}: {section} is not a section")
    return below


def toml_value(text: str) -> Any:
    """The text as a TOML value; a bare word is a string, and .5 is a number."""
    try:
        with parsing(f"{text:.60}…"):
            return tomllib.loads(f"value = {text}")["value"]
    except UserError as error:
        if not isinstance(error.__cause__, tomllib.TOMLDecodeError):
            raise
        if text.lstrip().startswith(("{", "[")):
            raise UserError(f"{text}: expected a TOML table or list: {error.__cause__}") from error
        return float(text) if re.fullmatch(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?", text, re.I) else text

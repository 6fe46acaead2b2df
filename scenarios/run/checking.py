"""Checking what was read from a file: the first mistake becomes one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedsim.core.errors import UserError
from scenarios.run.overrides import Override

M = TypeVar("M", bound=BaseModel)


def checked(
    kind: type[M], content: Mapping[str, Any], source: Path | str, changes: Sequence[Override] = ()
) -> M:
    """The object that a file's content makes; a `UserError` that names the source and the first mistake.

    The `changes` have been applied to the content already. A mistake in one of them is not the file's.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        mistake, key = _mistake(error, content)
        for change in reversed(changes):
            if _is_below(key, change.key):
                raise UserError(f"{change.said}: {mistake}") from error
            renamed = change.key.removesuffix(".name")
            if (
                renamed != change.key
                and error.errors()[0]["type"] == "unknown_key"
                and _is_below(key, renamed)
            ):
                advice = f"--set {renamed}={change.value} also replaces the settings beside the name"
                raise UserError(f"{change.said}: {mistake}; {advice}") from error
        raise UserError(f"{source}: {mistake}") from error


def _is_below(key: str, above: str) -> bool:
    return key == above or key.startswith(f"{above}.")


def _mistake(error: ValidationError, content: Mapping[str, Any]) -> tuple[str, str]:
    """The first mistake as one line: the key as the file spells it, the value, and what was expected.

    The second text is the key alone.
    """
    mistakes = error.errors()
    first, context = mistakes[0], mistakes[0].get("ctx", {})
    key, value = list(_file_keys(first["loc"], content)), f" is {first['input']!r:.60}"
    message = first["msg"].replace("Input should be", "expected")
    match first["type"]:
        case "unknown_key":
            key, value = [*key, context["key"]], ""
        case "extra_forbidden":
            value, message = "", "unknown key"
        case "missing":
            value, message = "", "missing"
        case "order":
            value = ""  # the message already names the entries of the list
        case "union_tag_invalid":
            key, value, message = (
                [*key, "name"],
                f" is {context['tag']!r}",
                f"expected {context['expected_tags']}",
            )
        case "union_tag_not_found":
            message = "expected a name, or a table with a name"
    more = len(mistakes) - 1
    said = f" (and {more} more mistake{'s' if more > 1 else ''})" if more else ""
    # A mistake in several settings together has no key, and its value would be all of them.
    dotted = ".".join(key)
    return (f"{dotted}{value}: {message}{said}" if key else f"{message}{said}"), dotted


def _file_keys(location: tuple[int | str, ...], content: Any) -> Iterable[str]:
    """The location as the file spells it: pydantic also inserts the names of union members."""
    for part in location:
        is_member = isinstance(content, Mapping) and part not in content and content.get("name") == part
        if isinstance(content, str) and content == part:
            is_member = True
        if not is_member:
            yield str(part)
            if isinstance(content, Mapping):
                content = content.get(part)
            else:
                content = content[part] if isinstance(content, list) and isinstance(part, int) else None

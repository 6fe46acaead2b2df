"""Plug-ins: a class of the user's own stands wherever a scenario names one of ours.

A scenario calls it `module:Class`. An installed package may give it a short name, as an entry point of the
group of its kind, such as `fedsim.defences`. Each union that takes plug-ins says so in its annotation:

    AnyDefence = Annotated[Clipping | Noise, Field(discriminator="name"), Extensible("defences", Defence)]
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler, ValidatorFunctionWrapHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings
from fedsim.core.users_code import attribute_named, is_users, mark_as_users, module_of, one_line

SEPARATOR = ":"


class PlugIn(Settings):
    """The base class of settings that a scenario chooses by name.

    Our own classes fix their `name` with a default. A class of the user's leaves it alone: it is called what
    the scenario calls it, or `module:Class`.
    """

    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _called_as_found(cls, content: Any) -> Any:
        if (
            isinstance(content, Mapping)
            and "name" not in content
            and cls.model_fields["name"].annotation is str
        ):
            return {"name": reference(cls), **content}
        return content


def reference(plug_in: type) -> str:
    """What a scenario calls a class that has no shorter name."""
    return f"{plug_in.__module__}{SEPARATOR}{plug_in.__qualname__}"


@dataclass(frozen=True)
class Extensible:
    """Put last in the annotation of a union of named settings, in the place of `BY_NAME`.

    Then a text stands for a table with that name, as with `BY_NAME`; and `module:Class`, or the name of an
    entry point in the group `fedsim.KIND`, stands for a subclass of `base`.
    """

    kind: str
    base: type[PlugIn]

    @property
    def group(self) -> str:
        """The group of entry points for this kind."""
        return f"fedsim.{self.kind}"

    def entry_points(self) -> dict[str, EntryPoint]:
        """What installed packages offer, by name."""
        return {entry.name: entry for entry in entry_points(group=self.group)}

    def find(self, name: str) -> type[PlugIn] | None:
        """The class for `module:Class`, or for a name that a package offers; None for any other name."""
        if SEPARATOR in name:
            return self._checked(name, attribute_named(name, said=self.kind))
        entry = self.entry_points().get(name)
        if entry is None:
            return None
        with one_line(f"{self.kind}: {name} cannot be imported from {entry.value}"):
            found = entry.load()
        return self._checked(name, found)

    def _checked(self, name: str, found: Any) -> type[PlugIn]:
        """The class, if it keeps the contract of its kind; a `UserError` otherwise."""
        about, wanted = f"{self.kind}: {name}", f"{self.base.__module__}.{self.base.__name__}"
        if not isinstance(found, type) or not issubclass(found, self.base):
            raise UserError(f"{about}: expected a class that extends {wanted}")
        if inspect.isabstract(found):
            missing = ", ".join(sorted(found.__abstractmethods__))
            raise UserError(f"{about}: it lacks what {wanted} asks for: {missing}")
        if found.model_fields["name"].annotation is not str:
            raise UserError(f"{about}: its field `name` is fixed: leave it out, scenarios call it {name}")
        mark_as_users(module_of(found))
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let the union check its own members, and the class of a plug-in its settings."""
        own = {member.model_fields["name"].default for member in get_args(source)}

        def check(value: Any, members: ValidatorFunctionWrapHandler) -> Any:
            value = {"name": value} if isinstance(value, str) else value
            if isinstance(value, self.base) and is_users(type(value)):
                return value
            name = value.get("name") if isinstance(value, Mapping) else None
            if isinstance(name, str) and name not in own and (found := self.find(name)) is not None:
                return found.model_validate(dict(value))
            return members(value)

        # Written as what it is: the union does not know the fields of a plug-in.
        any_class = core_schema.simple_ser_schema("any")
        return core_schema.no_info_wrap_validator_function(check, handler(source), serialization=any_class)


def extension(union: Any) -> Extensible | None:
    """How a union of named settings can be extended; None if it cannot."""
    return next((part for part in get_args(union) if isinstance(part, Extensible)), None)


def users_modules(settings: Settings) -> set[str]:
    """The modules of the user's own that these settings name, at any depth."""
    found = {type(settings).__module__} if is_users(type(settings)) else set()
    found |= settings.further_modules()
    for field in type(settings).model_fields:
        value = getattr(settings, field)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Settings):
                found |= users_modules(part)
    return found


def remember(settings: Settings) -> None:
    """In a process that got these settings from another one: faults in the user's classes are the user's."""
    if is_users(type(settings)):
        mark_as_users(module_of(type(settings)))

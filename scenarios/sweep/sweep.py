"""A sweep: one base, some keys, and a list of values for each. Every combination is a point.

A point is an ordinary scenario, or a planted problem without a federation. All points are made and checked
before the first one runs.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings
from scenarios.planted import Planted
from scenarios.run.checking import checked
from scenarios.run.figure_names import figure_names, is_figure
from scenarios.run.library import check_kind, read_toml
from scenarios.run.overrides import Override, Overrides, SettingsByKey, change_all, put, read_overrides
from scenarios.run.scenario import Scenario, find_scenario

Values = Mapping[str, Any]
"""Values by dotted key."""

AFTER_TRAINING: Any = {"title": True, "attack": True, "analytics": {"release"}}
"""The settings that change neither the transcript nor the devices' answers."""

SPOOLED = ".updates-"
"""Prefix of folders for a training's updates; a killed training leaves its folder behind."""


def _dotted(content: Any) -> Any:
    """Nested tables as one table of dotted keys; TOML reads `clients.lr = [...]` as nested tables."""
    if not isinstance(content, Mapping):
        return content
    return dict(_leaves(content))


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


Block = Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], BeforeValidator(_dotted)]


class SweepFile(Settings):
    """The content of a sweep file.

    Points start from `base` (a scenario file, a name from the library, or a table with the sections of a
    scenario) or from `planted` (the settings of a planted problem). `vary` is a table of dotted keys with
    lists of values, or several such tables. Each table gives all its combinations. `set` holds settings by
    dotted key that replace those of the base, as `--set` does. The page shows `figure`
    over the keys in `axes`, by default the first two that vary. Without `keep_runs`, a finished point keeps
    only its figures and its report. With `share_epochs`, points that differ only in `clients.local_epochs`
    share the longest training, if the model is fixed.
    """

    title: str
    base: str | dict[str, Any] | None = None
    planted: dict[str, Any] | None = None
    set: SettingsByKey = Field(default={})
    vary: Annotated[
        list[Block],
        Field(min_length=1),
        BeforeValidator(lambda content: [content] if isinstance(content, Mapping) else content),
    ]
    figure: str = "disaggregation.exact_fraction"
    axes: list[str] = Field(default=[], max_length=2)
    keep_runs: bool = True
    share_epochs: bool = False

    def content(self) -> dict[str, Any]:
        """The file's content, defaults written out; without `set` if nothing is set."""
        return self.model_dump(exclude_none=True, exclude=set() if self.set else {"set"})


@dataclass(frozen=True)
class Point:
    """One combination of values, and the settings that they give.

    `name` depends on all settings except the title. So an unchanged point keeps its name and its folder when
    the sweep changes. Points with the same `training` differ only in the attack and the release of counts;
    a planted problem has none.
    """

    values: Values
    settings: Scenario | Planted

    @cached_property
    def name(self) -> str:
        """Twelve characters that stand for the settings."""
        return _digest(self.settings.model_dump(mode="json", exclude={"title"}))

    def is_of(self, file: Path) -> bool:
        """Whether a scenario file has these settings, apart from its title."""
        try:
            settings = checked(type(self.settings), read_toml(file), file)
        except UserError:
            return False  # damaged, or written by a version with other keys
        return Point(self.values, settings).name == self.name

    @cached_property
    def training(self) -> str | None:
        """Twelve characters that stand for the settings that decide the transcript."""
        if isinstance(self.settings, Planted):
            return None
        return _digest(self.settings.model_dump(mode="json", exclude=AFTER_TRAINING))

    @cached_property
    def longer_training(self) -> str | None:
        """The same without the number of local epochs, if the model is fixed."""
        if isinstance(self.settings, Planted) or self.settings.federation.server_model != "fixed":
            return self.training
        excluded = {**AFTER_TRAINING, "clients": {"local_epochs"}}
        return _digest(self.settings.model_dump(mode="json", exclude=excluded))


@dataclass(frozen=True)
class Sweep:
    """A checked sweep: its file, its points without duplicates, and its varying keys in the file's order."""

    file: SweepFile
    points: tuple[Point, ...]
    keys: tuple[str, ...]

    @classmethod
    def load(cls, path: Path, overrides: Overrides = ()) -> Sweep:
        """Read a sweep file; `overrides` change its base. Any mistake is a `UserError` of one line."""
        content = read_toml(path)
        check_kind(path, content, "sweep")
        file, changes = checked(SweepFile, content, path), read_overrides(overrides)
        for change in changes:
            if all(change.key in block for block in file.vary):
                raise UserError(f"{change.said}: {path} varies {change.key}, so the base cannot set it")
        return cls.plan(file, path, changes)

    @classmethod
    def plan(cls, file: SweepFile, path: Path, changes: Iterable[Override] = ()) -> Sweep:
        """The points of a sweep file. `path` names it in messages; a base is first looked for beside it.

        The file that the sweep keeps holds the `changes` too, so that running it gives the same points.
        """
        kind, content = _base(file, path)
        own, changes = read_overrides(file.set), tuple(changes)
        change_all(content, (*own, *changes))
        if changes:
            told = ", ".join(map(str, changes))
            every = {change.key: change.value for change in (*own, *changes)}
            file = file.model_copy(update={"set": every, "title": f"{file.title} · {told}"})
        keys = tuple(dict.fromkeys(key for block in file.vary for key in block))
        for axis in file.axes:
            if axis not in keys:
                raise UserError(f"{path}: axes: {axis} does not vary, expected one of {', '.join(keys)}")
        points: dict[str, Point] = {}
        for block in file.vary:
            for combination in itertools.product(*block.values()):
                values = dict(zip(block, combination, strict=True))
                point = _point(kind, content, values, keys, path, changes=changes)
                points.setdefault(point.name, point)
        sweep = cls(file, tuple(points.values()), keys)
        sweep.check_figure(file.figure, f"{path}: figure")
        return sweep

    def check_figure(self, name: str, said: str) -> None:
        """Refuse a name that is no figure of any point; `said` begins the message."""
        known = dict.fromkeys(known for point in self.points for known in figure_names(point.settings))
        if name not in self.keys and not is_figure(name, known):
            similar = ", ".join(difflib.get_close_matches(name, known, n=5, cutoff=0.0))
            raise UserError(f"{said}: {name} is no figure of these points; the most similar are {similar}")


def _base(file: SweepFile, path: Path) -> tuple[type[Scenario | Planted], dict[str, Any]]:
    match file.base, file.planted:
        case None, dict() as planted:
            return Planted, copy.deepcopy(planted)
        case str() as name, None:
            beside = path.parent / name
            return Scenario, read_toml(beside if beside.is_file() else find_scenario(name))
        case dict() as scenario, None:
            return Scenario, copy.deepcopy(scenario)
        case _:
            raise UserError(f"{path}: expected either base or planted, and not both")


def _point(
    kind: type[Scenario | Planted],
    base: Mapping[str, Any],
    values: Values,
    keys: Iterable[str],
    path: Path,
    *,
    changes: Sequence[Override],
) -> Point:
    content = copy.deepcopy(dict(base))
    for key, value in values.items():
        put(content, key, value, said=f"{path}: vary: {key}")
    said = ", ".join(f"{key} = {shown(value)}" for key, value in values.items())
    if kind is Scenario and isinstance(title := content.get("title", ""), str):
        content["title"] = " · ".join(filter(None, (title, said)))
    settings = checked(kind, content, f"{path}: {said}", [c for c in changes if c.key not in values])
    every = settings.model_dump(mode="json")
    return Point({key: values[key] if key in values else _lookup(every, key) for key in keys}, settings)


def _lookup(content: Any, key: str) -> Any:
    """The value at a dotted key; None if there is none."""
    for part in key.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def shown(value: Any) -> str:
    """A value as a person writes it: a bare word, a number, or a table as its name and its settings."""
    if isinstance(value, Mapping):
        rest = " ".join(f"{key}={shown(entry)}" for key, entry in value.items() if key != "name")
        return " ".join(filter(None, (str(value.get("name", "")), rest)))
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]

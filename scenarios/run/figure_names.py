"""Figures by dotted name, such as `disaggregation.exact_fraction`: how tables and sweeps address a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from attacks.inference.attack import InferenceAttack
from scenarios.planted import Planted
from scenarios.run.inference.entries import entries
from scenarios.run.result import PlantedResult, Result, ResultFile
from scenarios.run.scenario import Scenario
from scenarios.run.scores import SCORES

ANY = "*"
"""Stands for a part of a name that the types leave open, such as the size of a cohort."""

_NOT_FIGURES = ("schema_version", "title", "kind")


def figures_of(result: ResultFile) -> dict[str, Any]:
    """Everything in a result by dotted name.

    Lists are left out, and so are names with spaces: they are free text, such as the reason of a failure.
    """
    return dict(_flat(result.to_json(), ""))


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif " " not in name and name not in _NOT_FIGURES and not isinstance(value, list):
            yield f"{prefix}{name}", value


def figure_names(settings: Scenario | Planted) -> list[str]:
    """The names of all numbers that a result of these settings may hold, with `ANY` for open parts."""
    if isinstance(settings, Planted):
        return list(_numbers(PlantedResult))
    return [*_numbers(Result), *_inference_names(settings.attack.inference)]


def is_figure(name: str, known: Iterable[str]) -> bool:
    """Whether one of the `known` names fits."""
    return any(_fits(name.split("."), pattern.split(".")) for pattern in known)


def _fits(parts: list[str], pattern: list[str]) -> bool:
    return len(parts) == len(pattern) and all(
        p in (ANY, part) for part, p in zip(parts, pattern, strict=True)
    )


def _inference_names(attacks: Iterable[InferenceAttack]) -> Iterator[str]:
    for key, attack in entries(attacks):
        section = f"inversion.{key}" if attack.kind == "inversion" else key
        yield from (f"{section}.{name}" for name in _numbers(SCORES[attack.kind]))


@cache
def _numbers(model: type[BaseModel]) -> tuple[str, ...]:
    fields = model.model_fields.items()
    # Which inversion attacks there are, a scenario says.
    return tuple(n for name, field in fields if name != "inversion" for n in _below(field.annotation, name))


def _below(kind: Any, name: str) -> Iterator[str]:
    """The names of the numbers in a value of this type."""
    if get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            if member is not NoneType:
                yield from _below(member, name)
    elif get_origin(kind) is Mapping:
        yield from _below(get_args(kind)[1], f"{name}.{ANY}")
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from (f"{name}.{below}" for below in _numbers(kind))
    elif kind in (int, float) and name not in _NOT_FIGURES:
        yield name

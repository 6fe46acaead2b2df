"""What differs between runs, and what came of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.core.errors import UserError
from fedsim.core.files import reading
from scenarios.run.directory import RunDirectory
from scenarios.run.history import Row, read_curve
from scenarios.run.result import Result
from scenarios.run.runner import read_result

ABSENT = "–"
"""Stands for a setting that a run does not have."""


@dataclass(frozen=True)
class Compared:
    """A finished run, as comparisons read it."""

    name: str
    """Short, and different for every run of a comparison."""
    path: Path
    settings: Mapping[str, str]
    """Every setting by dotted key, as text."""
    result: Result
    history: Sequence[Row]


def read_runs(paths: Sequence[Path]) -> list[Compared]:
    """The runs in these folders; anything else is a `UserError`."""
    if len({path.resolve() for path in paths}) < max(2, len(paths)):
        raise UserError("compare needs two or more different runs")
    names = _names(paths)
    return [_read(name, RunDirectory(path)) for name, path in zip(names, paths, strict=True)]


def _read(name: str, run: RunDirectory) -> Compared:
    for needed in (run.scenario, run.result):
        if not needed.exists():
            raise UserError(f"{run.path} is not a finished run: {needed.name} is missing")
    with reading(run.scenario, "the scenario of a run"):
        settings = dict(_flat(tomllib.loads(run.settings), ""))
    return Compared(name, run.path, settings, read_result(run), read_curve(run.history))


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _flat(content: Any, prefix: str) -> Iterator[tuple[str, str]]:
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in entries:
        if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value)):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def differing(runs: Sequence[Compared]) -> dict[str, list[str]]:
    """Settings that are not the same in all runs: dotted key → its value in each."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    values = {key: [run.settings.get(key, ABSENT) for run in runs] for key in keys}
    return {key: each for key, each in values.items() if len(set(each)) > 1}


def figures(runs: Sequence[Compared]) -> dict[str, list[float | None]]:
    """The most important figures with their baselines: title → the value of each run."""
    rows: dict[str, list[float | None]] = {}
    for place, run in enumerate(runs):
        for title, value in _figures(run.result):
            rows.setdefault(title, [None] * len(runs))[place] = value
    return {title: values for title, values in rows.items() if any(value is not None for value in values)}


def _figures(result: Result) -> Iterator[tuple[str, float | None]]:
    found, base, best = result.disaggregation, result.disaggregation.baselines, result.disaggregation.ceiling
    yield "participations found: guess", base.counts_only_ones_found
    yield "participations found: attack", found.ones_found
    yield "participations found: ceiling", best.ones_found if best else None
    yield "columns exactly right: guess", base.counts_only_exact_fraction
    yield "columns exactly right: attack", found.exact_fraction
    yield "columns exactly right: ceiling", best.exact_fraction if best else None
    yield "clients singled out", found.singled_out_fraction
    yield "recovery proved", found.certified_fraction
    yield "update cosine: mean aggregate", base.aggregate_update_cosine
    yield "update cosine: attack", found.update_cosine
    yield "update cosine: oracle", base.oracle_update_cosine
    yield f"test {result.training.metric}", result.training.test_accuracy
    for key, score in result.scores.items():
        for name, columns, _ in score.figures():
            for column in ("aggregate", "disaggregated", "oracle"):
                yield f"{key} {name}: {column}", getattr(columns, column)
    yield "seconds: simulation", result.simulation.seconds
    yield "seconds: disaggregation", result.disaggregation.seconds

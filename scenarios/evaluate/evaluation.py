"""An evaluation file: a base scenario, and the defences to compare on it.

An evaluation is a sweep underneath. It has one block of points for the base scenario as it is, and one for
each defence. All blocks have the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings
from scenarios.run.checking import checked
from scenarios.run.library import check_kind, read_toml
from scenarios.run.overrides import Overrides, SettingsByKey, read_overrides
from scenarios.sweep.sweep import Point, Sweep, SweepFile

UNDEFENDED = "none"
"""The name of the base scenario as it is."""


class Candidate(Settings):
    """A defence: its name in the table, and its settings, as in a scenario."""

    name: str
    set: Annotated[SettingsByKey, Field(min_length=1)]


class EvaluationFile(Settings):
    """The content of an evaluation file: a base as in a sweep, a number of seeds, and the defences."""

    title: str
    base: str | dict[str, Any]
    seeds: PositiveInt = 3
    defences: list[Candidate] = Field(min_length=1)
    keep_runs: bool = True


@dataclass(frozen=True)
class Evaluation:
    """A checked evaluation: the sweep of all its points, and the points of each defence."""

    file: EvaluationFile
    sweep: Sweep
    points: Mapping[str, tuple[Point, ...]]

    @classmethod
    def load(cls, path: Path, overrides: Overrides = ()) -> Evaluation:
        """Read an evaluation file; `overrides` change its base. Any mistake is a `UserError` of one line."""
        content = read_toml(path)
        check_kind(path, content, "evaluation")
        file, changes = checked(EvaluationFile, content, path), read_overrides(overrides)
        names = [UNDEFENDED, *(candidate.name for candidate in file.defences)]
        if len(set(names)) < len(names):
            raise UserError(f"{path}: defences: each name must be unique, and none may be {UNDEFENDED!r}")
        for candidate in file.defences:
            if "seed" in candidate.set:
                raise UserError(
                    f"{path}: defences: {candidate.name} sets the seed, but all defences share the same seeds"
                )
        for change in changes:
            if change.key == "seed":
                raise UserError(f"{change.said}: {path} uses the seeds 1 to {file.seeds}")
        blocks: dict[str, dict[str, Any]] = {UNDEFENDED: {}}
        blocks |= {candidate.name: candidate.set for candidate in file.defences}
        seeds = list(range(1, file.seeds + 1))
        vary = {
            name: {**{key: [value] for key, value in block.items()}, "seed": seeds}
            for name, block in blocks.items()
        }

        def planned(*chosen: dict[str, list[Any]]) -> Sweep:
            sweep = SweepFile(title=file.title, base=file.base, vary=list(chosen), keep_runs=file.keep_runs)
            return Sweep.plan(sweep, path, changes)

        points = {name: planned(block).points for name, block in vary.items()}
        whole = planned(*vary.values())
        return cls(file.model_copy(update={"title": whole.file.title}), whole, points)

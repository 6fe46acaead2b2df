"""Defences beside each other: what each stops and what it costs, with intervals over seeds.

An evaluation is a sweep underneath: one block of points for the base scenario as it is, and one for the base
with each defence's settings, each with the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, PositiveInt
from scipy.stats import t as student

from fedsim.core.errors import UserError
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings
from scenarios.run.checking import checked
from scenarios.run.figure_names import figures_of
from scenarios.run.result import ResultFile
from scenarios.run.scenario import read_toml
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.pool import Pool
from scenarios.sweep.run import PointResult, run_sweep
from scenarios.sweep.sweep import Point, Sweep, SweepFile

NONE = "none"
"""The base scenario as it is."""

CHANCE = "disaggregation.baselines.counts_only_exact_fraction"
SINGLED_OUT = "disaggregation.singled_out_fraction"
ADVANTAGE = "disaggregation.advantage"
COSINE = "disaggregation.update_cosine"
ACCURACY = "training.test_accuracy"
COUNT_ERROR = "analytics.count_error"
WINDOW, MISSING = "analytics.mean_window", "analytics.missing_fraction"
MESSAGES = "messages.all"

LEAKAGE = {
    "disaggregation.exact_fraction": "exact columns",
    CHANCE: "guess from counts",
    ADVANTAGE: "advantage",
    SINGLED_OUT: "singled out",
    "disaggregation.certified_fraction": "certified",
    COSINE: "update cosine",
    "disaggregation.baselines.aggregate_update_cosine": "cosine, no attack",
}
UTILITY = {
    ACCURACY: "test accuracy",
    COUNT_ERROR: "error of counts",
    WINDOW: "rounds per count",
    MISSING: "rounds without count",
    MESSAGES: "messages per round",
}
INFERENCE = {"psnr_db.disaggregated": "PSNR, dB", "auc.disaggregated": "AUC"}
"""Ends of the names of figures that inference attacks add, where a scenario has any."""

LITTLE = 0.05
"""Leakage that does not count, and the difference in accuracy that is not worth a word."""


def _settings(content: Any) -> Any:
    """Nested tables as dotted keys, down to tables with a name, which are set as a whole."""
    return dict(_leaves(content)) if isinstance(content, Mapping) else content


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping) and "name" not in value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class Candidate(Settings):
    """A defence: a name for the table, and the settings that make it, as in a scenario."""

    name: str
    set: Annotated[dict[str, Any], BeforeValidator(_settings), Field(min_length=1)]


class EvaluationFile(Settings):
    """What an evaluation file says: a base as in a sweep, how many seeds, and the defences."""

    title: str
    base: str | dict[str, Any]
    seeds: PositiveInt = 3
    defences: list[Candidate] = Field(min_length=1)
    keep_runs: bool = True


@dataclass(frozen=True)
class Evaluation:
    """A checked evaluation: the sweep of all its points, and which of them belong to which defence."""

    file: EvaluationFile
    sweep: Sweep
    points: Mapping[str, tuple[Point, ...]]

    @classmethod
    def load(cls, path: Path, overrides: Iterable[str] = ()) -> Evaluation:
        """Read an evaluation file; `overrides` change its base. Any mistake is a `UserError` of one line."""
        file, overrides = checked(EvaluationFile, read_toml(path), path), tuple(overrides)
        names = [NONE, *(candidate.name for candidate in file.defences)]
        if len(set(names)) < len(names):
            raise UserError(f"{path}: defences: every name may stand there once, and {NONE} not at all")
        for candidate in file.defences:
            if "seed" in candidate.set:
                raise UserError(f"{path}: defences: {candidate.name} sets the seed: all have the same seeds")
        for override in overrides:
            if override.partition("=")[0].strip() == "seed":
                raise UserError(f"--set {override}: seeds are 1 to {file.seeds}, as {path} says")
        blocks: dict[str, dict[str, Any]] = {NONE: {}}
        blocks |= {candidate.name: candidate.set for candidate in file.defences}
        seeds = list(range(1, file.seeds + 1))
        vary = {
            name: {**{key: [value] for key, value in block.items()}, "seed": seeds}
            for name, block in blocks.items()
        }

        def planned(*chosen: dict[str, list[Any]]) -> Sweep:
            sweep = SweepFile(title=file.title, base=file.base, vary=list(chosen), keep_runs=file.keep_runs)
            return Sweep.plan(sweep, path, overrides)

        points = {name: planned(block).points for name, block in vary.items()}
        return cls(file, planned(*vary.values()), points)


@dataclass(frozen=True)
class Figure:
    """A figure over seeds: its mean and the half width of its 95 % interval (None for a single seed)."""

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """By Student's t."""
        if len(values) < 2:
            return cls(float(values[0]), None)
        spread = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return cls(float(np.mean(values)), spread * float(student.ppf(0.975, len(values) - 1)))

    def __str__(self) -> str:
        return f"{round(self.mean, 3) + 0.0:.3f}" + (
            "" if self.half_width is None else f" ± {self.half_width:.3f}"
        )


@dataclass(frozen=True)
class Outcome:
    """What came of one defence: its figures by dotted name, over the points that did not fail."""

    name: str
    figures: Mapping[str, Figure]
    results: tuple[PointResult, ...]

    @classmethod
    def of(cls, name: str, results: Iterable[PointResult]) -> Outcome:
        """Every number that all the seeds have."""
        results = tuple(results)
        rows = [numbers(result.figures) for result in results if result.figures is not None]
        shared = [key for key in (rows[0] if rows else ()) if all(key in row for row in rows)]
        return cls(name, {key: Figure.of([row[key] for row in rows]) for key in shared}, results)

    def mean(self, key: str) -> float | None:
        """A figure's mean, if there is one."""
        return self.figures[key].mean if key in self.figures else None


def numbers(result: ResultFile) -> dict[str, float]:
    """The numbers of a result by dotted name, and the messages of a round added up."""
    found = {
        name: float(value)
        for name, value in figures_of(result).items()
        if name != "seed" and isinstance(value, int | float) and not isinstance(value, bool)
    }
    messages = [value for name, value in found.items() if name.startswith("messages.")]
    return found | ({MESSAGES: sum(messages)} if messages else {})


def evaluate(
    evaluation: Evaluation,
    directory: SweepDirectory,
    pool: Pool | None = None,
    progress: Progress = silent,
    *,
    fresh: bool = False,
) -> list[Outcome]:
    """Run what is not done yet, or not by this code if `fresh`.

    Outcomes are in the order of the file, the undefended base first.
    """
    done = run_sweep(evaluation.sweep, directory, pool, progress, fresh=fresh)
    results = {result.point.name: result for result in done}
    return [
        Outcome.of(name, (results[point.name] for point in points))
        for name, points in evaluation.points.items()
    ]


def columns(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The figures of the table and their headings: leakage, inference where configured, utility."""
    inference = {
        name: f"{name.rsplit('.', 3)[-3]} {label}"
        for outcome in outcomes
        for name in outcome.figures
        for end, label in INFERENCE.items()
        if name.endswith(f".{end}")
    }
    return {**LEAKAGE, **inference, **UTILITY}


def table(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Tidy rows, one per defence and figure: mean, half width of the interval, and number of seeds."""
    return [
        {
            "defence": outcome.name,
            "figure": name,
            "mean": figure.mean,
            "half_width_95": figure.half_width,
            "seeds": sum(result.figures is not None for result in outcome.results),
        }
        for outcome in outcomes
        for name, figure in outcome.figures.items()
    ]


def sentence(outcome: Outcome, none: Outcome) -> str:
    """What a defence stops and what it costs, in words that its figures give."""
    if not outcome.figures:
        return f"{outcome.name} failed: {outcome.results[0].reason}"
    if not none.figures:
        return f"{outcome.name}: there is nothing to compare it with"
    return f"{outcome.name} {_stopped(outcome, none)}; {_costs(outcome, none)}."


def _stopped(outcome: Outcome, none: Outcome) -> str:
    before, after = none.figures[SINGLED_OUT], outcome.figures[SINGLED_OUT]
    change = f"{_percent(after.mean)} of the clients are singled out instead of {_percent(before.mean)}"
    little = LITTLE + 1e-9  # one client of twenty is a little, however it is rounded
    if before.mean <= little:
        verdict = f"has nothing to stop: {_percent(before.mean)} of the clients are singled out without it"
    elif after.mean <= little:
        verdict = f"stops the attack: {change}" + _doubt(little - after.mean, after)
    elif after.mean >= before.mean - LITTLE:
        verdict = f"does not stop the attack: {change}"
        verdict += _doubt(little - (before.mean - after.mean), before, after)
    else:
        verdict = f"weakens the attack: {change}" + _doubt(before.mean - after.mean, before, after)
    chance = outcome.mean(CHANCE) or 0.0
    if chance > LITTLE:
        verdict += f" (a guess from the counts gets {_percent(chance)} of the columns)"
    return verdict


def _costs(outcome: Outcome, none: Outcome) -> str:
    costs = []
    before, after = none.figures[ACCURACY], outcome.figures[ACCURACY]
    if abs(after.mean - before.mean) > LITTLE / 5:
        points = f"{100 * (after.mean - before.mean):+.1f} points of test accuracy"
        costs.append(points + _doubt(abs(after.mean - before.mean), before, after))
    window, longer = none.mean(WINDOW), outcome.mean(WINDOW)
    if window is not None and longer is not None and longer > 1.05 * window:
        costs.append(f"a count for {longer:.3g} rounds instead of {window:.3g}")
    missing = outcome.mean(MISSING)
    if outcome.mean(COUNT_ERROR) is not None and missing and missing > (none.mean(MISSING) or 0.0) + 1e-3:
        costs.append(f"{_percent(missing)} of the rounds without a count")
    error = outcome.mean(COUNT_ERROR)
    if error is None:
        costs.append("no counts to publish")
    elif error > (none.mean(COUNT_ERROR) or 0.0) + 1e-3:
        costs.append(f"counts that are off by {error:.2g} on average")
    messages = (outcome.mean(MESSAGES) or 0.0) - (none.mean(MESSAGES) or 0.0)
    if abs(messages) > 0.05:
        costs.append(f"{messages:+.1f} messages per round")
    return "the price: " + (", ".join(costs) or "nothing that was measured")


def _doubt(margin: float, *figures: Figure) -> str:
    """A remark where a statement holds by a `margin` that the figures' intervals exceed, or have none."""
    widths = [figure.half_width for figure in figures if figure.half_width is not None]
    if len(widths) < len(figures):
        return " (one seed does not settle it)"
    return " (these seeds do not settle it)" if sum(widths) > margin else ""


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"

"""The outcome of each defence: its figures over the seeds, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from fedsim.core.progress import Progress, silent
from scenarios.evaluate.evaluation import Evaluation
from scenarios.evaluate.figures import INFERENCE, LEAKAGE, MESSAGES, OPTIONAL, UTILITY
from scenarios.run.figure_names import figures_of
from scenarios.run.result import ResultFile
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.pool import Pool
from scenarios.sweep.run import PointResult, run_sweep


@dataclass(frozen=True)
class Figure:
    """A figure over seeds: its mean and the half width of its 95 % interval (None for a single seed)."""

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """Mean and Student's t interval."""
        if len(values) < 2:
            return cls(float(values[0]), None)
        spread = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return cls(float(np.mean(values)), spread * float(student.ppf(0.975, len(values) - 1)))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of a share, within 0 and 1; the mean itself for a single seed."""
        width = self.half_width or 0.0
        return max(0.0, self.mean - width), min(1.0, self.mean + width)

    def shown(self, *, share: bool) -> str:
        """The figure with its interval; that of a share stays within 0 and 1."""
        if not share or self.half_width is None or not 0 <= self.mean <= 1:
            return str(self)
        low, high = self.interval
        return f"{round(self.mean, 3) + 0.0:.3f} [{low:.2f}, {high:.2f}]"

    def __str__(self) -> str:
        return f"{round(self.mean, 3) + 0.0:.3f}" + (
            "" if self.half_width is None else f" ± {self.half_width:.3f}"
        )


@dataclass(frozen=True)
class Outcome:
    """The figures of one defence by dotted name, over the points that did not fail."""

    name: str
    figures: Mapping[str, Figure]
    results: tuple[PointResult, ...]

    @classmethod
    def of(cls, name: str, results: Iterable[PointResult]) -> Outcome:
        """Keep every number that all seeds have."""
        results = tuple(results)
        rows = [numbers(result.figures) for result in results if result.figures is not None]
        shared = [key for key in (rows[0] if rows else ()) if all(key in row for row in rows)]
        return cls(name, {key: Figure.of([row[key] for row in rows]) for key in shared}, results)

    def mean(self, key: str) -> float | None:
        """The mean of a figure; None if there is none."""
        return self.figures[key].mean if key in self.figures else None


def numbers(result: ResultFile) -> dict[str, float]:
    """The numbers of a result by dotted name, and the total of messages per round."""
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
    """Run the points that are not done; with `fresh`, also those that other code made.

    Outcomes are in the order of the file, the undefended base first.
    """
    done = run_sweep(evaluation.sweep, directory, pool, progress, fresh=fresh)
    results = {result.point.name: result for result in done}
    return [
        Outcome.of(name, (results[point.name] for point in points))
        for name, points in evaluation.points.items()
    ]


def columns(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The figures of the table with their headings: leakage, inference if there is any, utility."""
    inference = {
        name: f"{name.rsplit('.', 3)[-3]} {label}"
        for outcome in outcomes
        for name in outcome.figures
        for end, label in INFERENCE.items()
        if name.endswith(f".{end}")
    }
    utility = {
        name: heading
        for name, heading in UTILITY.items()
        if name not in OPTIONAL or any(name in outcome.figures for outcome in outcomes)
    }
    return {**LEAKAGE, **inference, **utility}


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

"""Checks before comfort: do the rows look like what the audit takes them for?

Every doubt names what was found and the option that mends it. An audit with a doubt is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.subspace import Subspace
from scenarios.audit.logs import Log
from scenarios.audit.readings import LARGEST_RANK_SHARE, Chosen, separated, took_part

_ENTRIES = 4096
"""Entries of a row that are looked at; more tell nothing new."""
_FEWEST_ROUNDS = 12
"""Rounds below which courses over the rounds tell nothing."""
_MODEL_STEP, _MODEL_DRIFT = 0.02, 10.0
_MOMENTUM_STEP, _MOMENTUM_DRIFT = 0.6, 3.0
"""Median squared distance between the directions of neighbouring rows, and how many times as far rows half a
log apart are. In `benchmarks.tap`: sums 1.7 and 1.1, models 0.0001 and 80, FedAdam's steps 0.08 and 22."""
_SMALLEST_SPREAD = 0.05
"""Standard deviation of the cohort sizes, relative to their mean, from which on they tell means from sums."""
_FEWEST_ERRORS = 3.0
"""Standard errors by which the growth with the cohort size must miss the range of sums."""
_LEAST_ASSUMED = 1.0
"""Exponent of the cohort size that is expected of rows if nobody said that they are sums."""
_MOST_OF_MEANS = 0.5
"""Exponent up to which rows look like means, whose exponent is 0 at most."""
_ENOUGH_OF_SPECTRUM = 0.5
"""Share of the clients that the attack must separate before a number that only the spectrum tells counts. In
sums of a softmax regression that learns, a column with one participation passed for one of 80 clients."""
_SOURCES = {"given": "--clients", "counts": "the counts", "spectrum": "the spectrum"}


@dataclass(frozen=True)
class Doubt:
    """What makes an audit inconclusive, and the option or file that mends it."""

    finding: str
    mend: str


def doubts(log: Log, chosen: Chosen) -> tuple[Doubt, ...]:
    """Everything that speaks against the audit's own reading of the log."""
    about_rows = (
        *_about_the_reading(log, chosen.reading.subspace),
        *_about_courses(log),
        *_about_sizes(log),
    )
    # Rows that are no sums have any rank.
    return about_rows or tuple(_about_the_rank(chosen))


def _about_the_reading(log: Log, subspace: Subspace) -> Iterator[Doubt]:
    if log.missing == "--modulus":
        yield Doubt(
            "The rows are integers: they may be known up to multiples of a modulus only.",
            "--modulus N, or --modulus 0 if they are plain numbers",
        )
    if log.missing == "--cohort-sizes":
        what = "weight" if log.stated == "weighted-means" else "number of updates"
        yield Doubt(
            f"The rows are means, and the {what} of each round is unknown: the sums cannot be told.",
            "--cohort-sizes FILE with the column " + ("weight" if what == "weight" else "cohort_size"),
        )
    elif log.assumed and log.stated is None and log.cohort_sizes is None and not subspace.exact:
        yield Doubt(
            "Nobody says whether the rows are sums or means, and without cohort sizes they do not show it.",
            "--rows sums, or --rows means with --cohort-sizes FILE",
        )


def _about_courses(log: Log) -> Iterator[Doubt]:
    """Models change little from round to round and drift; steps with momentum do so to a lesser degree."""
    if not log.assumed:
        return
    rows = _sampled(log.aggregates)
    norms = np.linalg.norm(rows, axis=1)
    directions = rows[norms > 0] / norms[norms > 0, None]
    if len(directions) < _FEWEST_ROUNDS:
        return
    half = len(directions) // 2
    step, far = (
        float(np.median(((directions[lag:] - directions[:-lag]) ** 2).sum(axis=1))) for lag in (1, half)
    )
    drift = far / max(step, np.finfo(np.float64).tiny)
    if step < _MODEL_STEP and drift > _MODEL_DRIFT and log.stated is None:
        yield Doubt(
            "The rows look like models, not updates: neighbouring rows are almost the same, and they drift.",
            "--models PATH in place of --aggregates; --rows sums if they are sums nevertheless",
        )
    elif step < _MOMENTUM_STEP and drift > _MOMENTUM_DRIFT:
        yield Doubt(
            "Neighbouring rows resemble each other, as the steps of a server with momentum do.",
            "--models PATH with --server fedavgm or fedadam; --rows sums or --server fedavg if that is right",
        )


def _about_sizes(log: Log) -> Iterator[Doubt]:
    """The squared length of a sum grows at least like its number of updates, that of a mean does not grow."""
    growth = _growth(log)
    if growth is None:
        return
    slope, error = growth
    # Noise that does not depend on the cohort hides the growth of sums, but lets no sum shrink.
    least = _LEAST_ASSUMED if log.assumed else 0.0
    if slope < min(least - _FEWEST_ERRORS * error, _MOST_OF_MEANS):
        yield Doubt(
            f"The rows do not grow with the cohort sizes as sums do (exponent {slope:.1f} ± {error:.1f}, "
            "expected 1 to 2): they look like means.",
            "--rows means, or --rows weighted-means if the updates were weighted",
        )
    elif slope > 2 + _FEWEST_ERRORS * error:
        yield Doubt(
            f"The rows grow faster with the cohort sizes than sums do (exponent {slope:.1f} ± {error:.1f}, "
            "expected 1 to 2).",
            "--rows sums, or the cohort sizes that belong to these rows",
        )


def _growth(log: Log) -> tuple[float, float] | None:
    """The exponent of the cohort size in the squared length of a row, and its standard error.

    From differences between neighbouring rounds, because lengths change in the course of a training.
    """
    if log.cohort_sizes is None or len(log.cohort_sizes) != len(log.aggregates):
        return None
    energy = (_sampled(log.aggregates) ** 2).sum(axis=1)
    used = (energy > 0) & (log.cohort_sizes > 0)
    size, length = np.log(log.cohort_sizes[used]), np.log(energy[used])
    if len(size) < _FEWEST_ROUNDS or size.std() < _SMALLEST_SPREAD:
        return None
    x, y = np.diff(size), np.diff(length)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    return slope, float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / (x @ x)))


def _about_the_rank(chosen: Chosen) -> Iterator[Doubt]:
    """Contradictions between the rank and the number of clients; nothing found although much should be."""
    problem, subspace = chosen.reading.problem, chosen.reading.subspace
    found = separated(chosen.recovery)
    nobody, few = found == 0, found < _ENOUGH_OF_SPECTRUM * subspace.num_clients
    low = subspace.exact and subspace.rank <= LARGEST_RANK_SHARE * problem.rounds
    named = took_part(problem)
    if named is not None and problem.dim < named:
        yield Doubt(
            f"An update has {problem.dim} entries, fewer than the {named} clients that took part: sums of so "
            "few entries have no room for all columns, and the attack loses its best evidence.",
            "--aggregates FILE with all entries of the updates",
        )
    elif named is not None and low and named > subspace.rank:
        yield Doubt(
            f"The counts name {named} clients that took part, and sums without noise have rank "
            f"{subspace.rank}. Clients that only ever take part together explain that, or counts of other "
            "sums.",
            "--counts FILE of these rounds",
        )
    elif nobody and len(chosen.tried) > 1:
        yield Doubt(
            f"The input and the spectrum contradict each other about the number of clients "
            f"({_numbers(chosen)}), and the attack separates nobody with either.",
            "--clients N and --counts FILE that belong to these rows",
        )
    elif named is None and len(chosen.tried) == 1 and chosen.reading.told_by == "spectrum" and few:
        yield Doubt(
            f"Nobody says how many clients are in the sums. The spectrum suggests {subspace.num_clients}, "
            f"which is a guess if the model moves, and the attack separates {found or 'none'} of them.",
            "--counts FILE, or --clients N",
        )
    elif nobody and low:
        yield Doubt(
            f"Sums without noise and of rank {subspace.rank} in {problem.rounds} rounds give clients away as "
            "a rule, and here nobody was separated. Rows that are no plain sums would explain that.",
            "--rows means or --rows weighted-means with --cohort-sizes FILE, or --models PATH",
        )


def _numbers(chosen: Chosen) -> str:
    return " and ".join(f"{tried.num_clients} by {_SOURCES[tried.told_by]}" for tried in chosen.tried)


def _sampled(rows: NDArray[Any]) -> NDArray[np.float64]:
    """(rounds, at most `_ENTRIES`) evenly spread entries of every row."""
    if rows.ndim != 2:
        return np.zeros((0, 0))
    chosen = np.unique(np.linspace(0, rows.shape[1] - 1, _ENTRIES).astype(np.intp))
    return np.asarray(rows[:, chosen], dtype=np.float64)

"""How many clients are in the sums: what the input says, and what the spectrum says.

Sums without noise have as many independent directions as clients, if the model stands still. If it moves,
every round has updates of its own, and the rank tells something about the model instead: a softmax regression
with c classes and d features never exceeds (c - 1) d. So the rank is one reading among others. If it
contradicts the input, the audit attacks with both numbers and keeps the one with which more is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from attacks.disaggregation import DisaggregationProblem, Recovery
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.space.subspace import Subspace, find_subspace

Source = Literal["given", "counts", "spectrum"]
"""Who says how many clients there are: the user, the counts, or the rank of the sums."""

LARGEST_RANK_SHARE = 0.75
"""Rank per round up to which the rank tells the number of clients; near 1, rounds may limit it."""


@dataclass(frozen=True)
class Reading:
    """A log with a number of clients, and who says that number."""

    problem: DisaggregationProblem
    subspace: Subspace
    told_by: Source

    @property
    def num_clients(self) -> int:
        """Number of clients in the sums."""
        return self.subspace.num_clients


@dataclass(frozen=True)
class Tried:
    """A number of clients with which the attack was tried, and how many of them it separated."""

    num_clients: int
    told_by: Source
    separated: int


@dataclass(frozen=True)
class Chosen:
    """The reading with which most was found, and its recovery; `tried` holds all attempts, this one first."""

    reading: Reading
    recovery: Recovery
    tried: tuple[Tried, ...]


def readings(problem: DisaggregationProblem, *, given: bool, rng: np.random.Generator) -> tuple[Reading, ...]:
    """The reading of the input first, then that of the spectrum if it contradicts the input.

    `given` says that the number of clients comes from the user.
    """
    told_by: Source = "given" if given else "counts" if problem.counts is not None else "spectrum"
    own = Reading(problem, find_subspace(problem, rng=rng), told_by)
    if told_by == "spectrum":
        return (own,)
    free = _by_rank(own, rng)
    occupied = sum(bool(row.any()) for row in problem.aggregates)
    if not free.exact or free.rank in (0, own.num_clients) or free.rank >= occupied:
        return (own,)
    if free.rank < own.num_clients or given:
        # Few rounds limit the rank, and clients that never took part do not add to it.
        all_there = not given and free.rank >= (took_part(problem) or 0)
        if all_there or free.rank > LARGEST_RANK_SHARE * occupied:
            return (own,)
    return own, Reading(_with_rank(problem, free.rank), free, "spectrum")


def choose(candidates: tuple[Reading, ...], attack: Callable[[Reading], Recovery]) -> Chosen:
    """Attack with every reading; the one with more columns expected to be right wins, the first in a tie.

    If the spectrum says that there are more clients than the counts name, and with its number all named
    clients come out, then others had no name. Nothing contradicts that, and the first is not tried.
    """
    own, *others = candidates
    if others and own.told_by == "counts" and others[0].num_clients > own.num_clients:
        recovery = attack(others[0])
        if (recovery.outcome != Outcome.UNRESOLVED).all():
            return Chosen(others[0], recovery, (_tried(others[0], recovery),))
        attempts = [(own, attack(own)), (others[0], recovery)]
    else:
        attempts = [(reading, attack(reading)) for reading in candidates]
    reading, recovery = max(attempts, key=lambda attempt: _worth(attempt[1]))
    rest = [attempt for attempt in attempts if attempt[0] is not reading]
    return Chosen(reading, recovery, tuple(_tried(*attempt) for attempt in [(reading, recovery), *rest]))


def separated(recovery: Recovery) -> int:
    """Clients whose column was recovered."""
    return int((recovery.outcome != Outcome.UNRESOLVED).sum())


def _tried(reading: Reading, recovery: Recovery) -> Tried:
    return Tried(reading.num_clients, reading.told_by, separated(recovery))


def _worth(recovery: Recovery) -> float:
    return float(recovery.confidence[recovery.outcome != Outcome.UNRESOLVED].sum())


def took_part(problem: DisaggregationProblem) -> int | None:
    """Clients that the counts show to have taken part; None without counts."""
    if problem.counts is None:
        return None
    return int((np.bincount(problem.counts.client, np.nan_to_num(problem.counts.count)) > 0).sum())


def _by_rank(own: Reading, rng: np.random.Generator) -> Subspace:
    """The column space with as many clients as its rank. Without noise that is known already."""
    if own.subspace.exact:
        return replace(own.subspace, num_clients=own.subspace.rank)
    return find_subspace(replace(own.problem, counts=None, cohort_sizes=None, num_clients=None), rng=rng)


def _with_rank(problem: DisaggregationProblem, rank: int) -> DisaggregationProblem:
    """The problem with `rank` clients; counts that name more are left out, and so are larger cohorts."""
    named = problem.counts is not None and len(problem.counts.clients) <= rank
    sizes = problem.cohort_sizes
    fits = sizes is not None and int(np.max(sizes)) <= rank
    return replace(
        problem,
        counts=problem.counts if named else None,
        cohort_sizes=sizes if fits else None,
        num_clients=rank,
    )

"""What would have prevented the leak: the same attack on the same log after some changes.

A client counts as separated under a change if its column comes out as it did without the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from analytics.release import Coarsening
from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.disaggregate import solver_named
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import unmet_need
from attacks.disaggregation.space.subspace import Subspace
from fedsim.core.progress import Progress
from fedsim.core.seeds import Stage, stream

COARSER_WINDOWS = (2, 4, 8)
"""Numbers of counts that are merged into one, in the changes that are tried."""
KEPT_ROUNDS = (0.75, 0.5, 0.25)
"""Fractions of the rounds that are kept, in the changes that are tried."""


@dataclass(frozen=True)
class Alternative:
    """A change, and the number of clients that come out the same in spite of it."""

    change: str
    separated: int


def try_alternatives(
    problem: DisaggregationProblem,
    subspace: Subspace,
    found: Recovery,
    *,
    solver: str,
    seed: int,
    progress: Progress,
) -> tuple[Alternative, ...]:
    """Attack the log again after each change; nothing is tried if nobody was separated.

    The solver stays the same, because a weaker one would mistake its own failure for protection. Only if it
    needs counts and the change removes them does `auto` take its place.
    """
    if not (found.outcome != Outcome.UNRESOLVED).any():
        return ()
    changes = list(_changes(replace(problem, num_clients=subspace.num_clients)))
    tried = []
    for number, (change, changed) in enumerate(changes):
        progress(number, len(changes))
        same = changed.aggregates is problem.aggregates  # counts do not change the column space
        recovery = disaggregate(
            changed,
            solver if unmet_need(solver_named(solver), has_counts=changed.has_counts) is None else "auto",
            rng=stream(seed, Stage.ATTACK),
            subspace=subspace if same else None,
        )
        named = problem.counts is not None and changed.counts is not None
        tried.append(Alternative(change, _agreement(recovery, found, named=named)))
    progress(len(changes), len(changes))
    return tuple(tried)


def _changes(problem: DisaggregationProblem) -> Iterator[tuple[str, DisaggregationProblem]]:
    counts = problem.counts
    if counts is not None:
        for many in COARSER_WINDOWS:
            fewer = Coarsening(counts=many).apply(counts, np.random.default_rng(0))
            yield f"one count in place of {many}", replace(problem, counts=fewer)
        yield "no counts, and so no names", replace(problem, counts=None)
    for part in KEPT_ROUNDS:
        rounds = max(1, int(part * problem.rounds))
        sizes = None if problem.cohort_sizes is None else np.asarray(problem.cohort_sizes)[:rounds]
        yield (
            f"only the first {rounds} of {problem.rounds} rounds",
            replace(
                problem,
                aggregates=problem.aggregates[:rounds],
                counts=None if counts is None else _before(counts, rounds),
                cohort_sizes=sizes,
                places=None if problem.places is None else problem.places[:rounds],
            ),
        )


def _before(counts: ParticipationReport, rounds: int) -> ParticipationReport:
    """The counts whose windows end within the first `rounds` rounds."""
    past = counts.stop <= rounds
    return ParticipationReport(
        counts.clients,
        counts.client[past],
        counts.start[past],
        counts.stop[past],
        counts.count[past],
        counts.sd[past],
        counts.is_laplace[past],
    )


def _agreement(recovery: Recovery, found: Recovery, *, named: bool) -> int:
    """How many separated columns of `found` are separated again, for the same client if both are `named`."""
    again = recovery.participation
    before = found.participation[: len(again)]
    stands, stands_again = (r.outcome != Outcome.UNRESOLVED for r in (found, recovery))
    if named:
        return int((stands & stands_again & (again == before).all(axis=0)).sum())
    columns = {column.tobytes() for column in again[:, stands_again].T}
    return sum(column.tobytes() in columns for column in before[:, stands].T)

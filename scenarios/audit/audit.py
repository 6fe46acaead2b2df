"""The audit of a real system's logs: sums and counts, no simulator and no truth.

What the attack makes of them is a `Recovery` like any other. Without a truth to score it with, the audit
counts the clients that were separated, with proof or probably, and tries on the same log what would have
prevented it: a client counts as separated under a change if its column comes out as it did without.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analytics.release import Coarsening
from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.disaggregate import solver_named
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import unmet_need
from attacks.disaggregation.space.subspace import Subspace, find_subspace
from attacks.reconciliation import posed_problem
from fedsim.core.files import write_json, write_text, written_whole
from fedsim.core.progress import Progress, silent
from fedsim.core.seeds import Stage, stream
from scenarios.audit.logs import Log

COARSER = (2, 4, 8)
"""How many windows are merged into one, in the changes that are tried."""
FEWER_ROUNDS = (0.75, 0.5, 0.25)
"""What part of the rounds is kept, in the changes that are tried."""


@dataclass(frozen=True)
class Alternative:
    """A change, and how many clients would have been separated under it as they were without."""

    change: str
    separated: int


@dataclass(frozen=True)
class Audit:
    """What a log gives away.

    `num_clients` is the number that the sums hold: given, in the counts, or read off the spectrum, as
    `told_by` says. `noise` is the energy of what is outside the clients' space relative to what is inside;
    `exact` says that it is rounding only. Columns are `named` if there are counts. `doubted` is the standard
    deviation of the error that exact counts were taken with, because the cohort sizes contradict them.
    `sums_alone` is how many columns come out of the sums if nothing else is believed, whosesoever they are;
    None if that was not tried.
    """

    rounds: int
    dim: int
    num_clients: int
    told_by: str
    rank: int
    noise: float
    exact: bool
    recovery: Recovery
    named: bool
    doubted: float | None
    alternatives: tuple[Alternative, ...]
    sums_alone: int | None

    @property
    def separated(self) -> int:
        """Clients with a column to stand by."""
        return int((self.recovery.outcome != Outcome.UNRESOLVED).sum())

    @property
    def singled_out(self) -> int:
        """Clients whose own update follows, and not only the sum of a group's."""
        return int(np.isfinite(self.recovery.update_error).sum())

    @property
    def expected_right(self) -> float:
        """How many of the separated clients' columns are right, if confidence keeps its word."""
        return float(self.recovery.confidence[self.recovery.outcome != Outcome.UNRESOLVED].sum())

    def summary(self) -> dict[str, Any]:
        """Every figure of the audit."""
        recovery = self.recovery
        numbers = {outcome.value: int((recovery.outcome == outcome).sum()) for outcome in Outcome}
        reasons, how_often = np.unique(
            recovery.reason[recovery.outcome == Outcome.UNRESOLVED], return_counts=True
        )
        return {
            "rounds": self.rounds,
            "entries": self.dim,
            "clients": {
                "number": self.num_clients,
                "told_by": self.told_by,
                "named": len(recovery.clients) if self.named else 0,
            },
            "rank": self.rank,
            "noise": {"relative": self.noise, "exact": self.exact},
            "separated": self.separated,
            "singled_out": self.singled_out,
            "outcomes": numbers,
            "expected_right": self.expected_right,
            "counts_doubted_sd": self.doubted,
            "unresolved": {str(r): int(n) for r, n in zip(reasons, how_often, strict=True)},
            "alternatives": [
                {"change": alternative.change, "separated": alternative.separated}
                for alternative in self.alternatives
            ],
            "sums_alone": self.sums_alone,
            "solver": recovery.solver,
            "seconds": recovery.seconds,
        }

    def save(self, folder: Path) -> None:
        """`recovery.npz`, `clients.csv`, `result.json` and the page, each written whole."""
        from scenarios.audit.page import render_audit

        self.recovery.save(folder / "recovery.npz")
        with (
            written_whole(folder / "clients.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            rows = client_rows(self.recovery)
            writer = csv.DictWriter(
                file, ["client", "outcome", "confidence", "rounds", "update_error", "reason"]
            )
            writer.writeheader()
            writer.writerows(rows)
        write_json(folder / "result.json", self.summary())
        write_text(folder / "report.html", render_audit(self))


def client_rows(recovery: Recovery) -> list[dict[str, Any]]:
    """One row per client, in the order of the recovery."""
    took_part = (recovery.participation == 1).sum(axis=0)
    return [
        {
            "client": str(recovery.clients[k]),
            "outcome": str(recovery.outcome[k]),
            "confidence": f"{recovery.confidence[k]:.4g}",
            "rounds": int(took_part[k]) if recovery.outcome[k] != Outcome.UNRESOLVED else "",
            "update_error": "" if np.isnan(recovery.update_error[k]) else f"{recovery.update_error[k]:.4g}",
            "reason": str(recovery.reason[k]),
        }
        for k in range(len(recovery.clients))
    ]


def audit(
    log: Log,
    *,
    num_clients: int | None = None,
    solver: str = "auto",
    seed: int = 0,
    alternatives: bool = True,
    solving: Progress = silent,
    trying: Progress = silent,
) -> Audit:
    """Attack a log as a curious server would, and say what comes of it.

    With the `seed` of a scenario this is the attack that a run of it makes: the same view gives the same
    recovery. `alternatives` are tried on the same log, each at the cost of another attack.
    """
    with log.mistakes():
        problem = posed_problem(
            log.aggregates,
            log.counts,
            num_clients=num_clients,
            cohort_sizes=log.cohort_sizes,
            layer_shapes=log.layer_shapes,
        )
    # The same streams as in a simulated run.
    space_rng, _ = stream(seed, Stage.ATTACK).spawn(2)
    subspace = find_subspace(problem, rng=space_rng)
    told_by = "given" if num_clients else "counts" if problem.counts is not None else "spectrum"
    if told_by == "counts" and not subspace.exact:
        # Clients that never answered take part all the same: if there is no noise, the rank tells of them.
        unnamed = find_subspace(replace(problem, counts=None), rng=space_rng)
        if unnamed.exact and unnamed.rank < problem.rounds:
            problem, subspace, told_by = replace(problem, num_clients=unnamed.rank), unnamed, "spectrum"
    with log.mistakes():
        recovery = disaggregate(
            problem, solver, rng=stream(seed, Stage.ATTACK), progress=solving, subspace=subspace
        )
    missing = alternatives and (recovery.outcome == Outcome.UNRESOLVED).any()
    return Audit(
        rounds=problem.rounds,
        dim=problem.dim,
        num_clients=subspace.num_clients,
        told_by=told_by,
        rank=subspace.rank,
        noise=subspace.noise**2,
        exact=subspace.exact,
        recovery=recovery,
        named=problem.counts is not None,
        doubted=_doubted(log.counts, problem.counts),
        alternatives=_tried(problem, subspace, recovery, solver=solver, seed=seed, progress=trying)
        if alternatives
        else (),
        sums_alone=_sums_alone(problem, subspace, seed) if missing else None,
    )


def _doubted(given: ParticipationReport | None, taken: ParticipationReport | None) -> float | None:
    """The error that exact counts were taken with, if they were not believed."""
    if given is None or taken is None or (given.sd > 0).any() or not (taken.sd > 0).any():
        return None
    return float(taken.sd.max())


def _tried(
    problem: DisaggregationProblem,
    subspace: Subspace,
    found: Recovery,
    *,
    solver: str,
    seed: int,
    progress: Progress,
) -> tuple[Alternative, ...]:
    """The same attack on the log after each change; nothing to try if nothing was separated.

    A weaker one would take its own failure for protection. Only where a change takes the counts away is it
    `auto`, because another solver may need them.
    """
    if not (found.outcome != Outcome.UNRESOLVED).any():
        return ()
    changes = list(_changes(replace(problem, num_clients=subspace.num_clients)))
    tried = []
    for number, (change, changed) in enumerate(changes):
        progress(number, len(changes))
        same = changed.aggregates is problem.aggregates  # the space does not depend on the counts
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


def _sums_alone(problem: DisaggregationProblem, subspace: Subspace, seed: int) -> int:
    """Columns that come out if counts and cohort sizes, which may be wrong or misread, are not believed."""
    alone = replace(problem, counts=None, cohort_sizes=None, num_clients=subspace.num_clients)
    recovery = disaggregate(alone, rng=stream(seed, Stage.ATTACK), subspace=subspace)
    return int((recovery.outcome != Outcome.UNRESOLVED).sum())


def _changes(problem: DisaggregationProblem) -> Iterator[tuple[str, DisaggregationProblem]]:
    counts = problem.counts
    if counts is not None:
        for many in COARSER:
            fewer = Coarsening(counts=many).apply(counts, np.random.default_rng(0))
            yield f"one count for every {many} that were published", replace(problem, counts=fewer)
        yield "no counts at all, and so without names", replace(problem, counts=None)
    for part in FEWER_ROUNDS:
        rounds = max(1, int(part * problem.rounds))
        sizes = None if problem.cohort_sizes is None else np.asarray(problem.cohort_sizes)[:rounds]
        yield (
            f"the first {rounds} of the {problem.rounds} rounds only",
            replace(
                problem,
                aggregates=problem.aggregates[:rounds],
                counts=None if counts is None else _before(counts, rounds),
                cohort_sizes=sizes,
            ),
        )


def _before(counts: ParticipationReport, rounds: int) -> ParticipationReport:
    """The counts of windows that ended by then."""
    past = counts.stop <= rounds
    return ParticipationReport(
        counts.clients,
        counts.client[past],
        counts.start[past],
        counts.stop[past],
        counts.count[past],
        counts.sd[past],
    )


def _agreement(recovery: Recovery, found: Recovery, *, named: bool) -> int:
    """How many separated columns of `found` are separated again, as the same client's if both are `named`."""
    again = recovery.participation
    before = found.participation[: len(again)]
    stands, stands_again = (r.outcome != Outcome.UNRESOLVED for r in (found, recovery))
    if named:
        return int((stands & stands_again & (again == before).all(axis=0)).sum())
    columns = {column.tobytes() for column in again[:, stands_again].T}
    return sum(column.tobytes() in columns for column in before[:, stands].T)

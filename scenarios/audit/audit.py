"""The audit of a real system's logs: sums and counts, no simulator and no truth.

There is no truth to score the recovery with. So the audit counts the clients that the attack separated, with
proof or probably, and tries on the same log what would have prevented it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.disaggregate import solver_named
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import unmet_need
from attacks.disaggregation.space.subspace import Subspace, find_subspace
from attacks.reconciliation import posed_problem
from fedsim.core.progress import Progress, silent
from fedsim.core.seeds import Stage, stream
from scenarios.audit.alternatives import Alternative, try_alternatives
from scenarios.audit.doubts import Doubt, doubts
from scenarios.audit.logs import Log

_LARGEST_RANK_SHARE = 0.75
"""Rank per round up to which the rank tells the number of clients; near 1, rounds may limit it."""


@dataclass(frozen=True)
class Rejected:
    """A given number of clients with which the attack separates fewer than with the rank of the sums."""

    num_clients: int
    separated: int


@dataclass(frozen=True)
class Score:
    """`right` of the `claimed` columns are true; the attack itself expected `expected` of them to be.

    `false_proofs` are columns that count as proved and are wrong: there should be none. `clients` took part.
    """

    clients: int
    claimed: int
    expected: float
    right: int
    false_proofs: int


@dataclass(frozen=True)
class Audit:
    """The findings about a log.

    `num_clients` is the number of clients in the sums. `told_by` says where it comes from: `given`, `counts`
    or `spectrum`. `noise` is the energy outside the clients' column space, relative to the energy inside;
    `exact` means that it is only rounding. Columns are `named` if there are counts. If cohort sizes
    contradict exact counts, `doubted` is the standard deviation that the attack assumed for them.
    `sums_alone` is the number of columns that the sums give without counts and cohort sizes; None if that was
    not tried. If the attack separates more clients with the rank of the sums as their number than with
    a given number, the audit shows the former, and `rejected` holds the given number. `doubts` speak against
    the audit's reading of the log. `score` compares the findings with the truth, if the log keeps it.
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
    rejected: Rejected | None = None
    doubts: tuple[Doubt, ...] = ()
    score: Score | None = None

    @property
    def verdict(self) -> str:
        """`inconclusive` if anything contradicts the audit's reading, else `exposed` or `not separated`."""
        beyond_reach = self.told_by == "given" and not self.separated and self.num_clients >= self.rounds
        if self.doubts or self.rejected is not None or beyond_reach or self.misread:
            return "inconclusive"
        return "exposed" if self.separated else "not separated"

    @property
    def misread(self) -> bool:
        """Whether the sums alone give more than the sums with counts and cohort sizes."""
        return self.sums_alone is not None and self.sums_alone > self.separated

    @property
    def separated(self) -> int:
        """Clients whose column was recovered."""
        return _separated(self.recovery)

    @property
    def singled_out(self) -> int:
        """Clients whose own update was recovered, and not only the sum of a group."""
        return int(np.isfinite(self.recovery.update_error).sum())

    @property
    def expected_right(self) -> float:
        """Expected number of right columns among the separated clients, by the attack's own confidence."""
        return float(self.recovery.confidence[self.recovery.outcome != Outcome.UNRESOLVED].sum())

    def summary(self) -> dict[str, Any]:
        """Every figure of the audit."""
        recovery = self.recovery
        numbers = {outcome.value: int((recovery.outcome == outcome).sum()) for outcome in Outcome}
        reasons, how_often = np.unique(
            recovery.reason[recovery.outcome == Outcome.UNRESOLVED], return_counts=True
        )
        return {
            "verdict": self.verdict,
            "doubts": [asdict(doubt) for doubt in self.doubts],
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
            "score": None if self.score is None else asdict(self.score),
            "rejected_clients": None if self.rejected is None else asdict(self.rejected),
            "solver": recovery.solver,
            "seconds": recovery.seconds,
        }


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
    """Attack a log as a curious server would.

    With the `seed` of a scenario, the same view gives the same recovery as a run of that scenario. Each of
    the `alternatives` costs another attack.
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
        # Clients that never answered may have taken part. Without noise, the rank reveals them.
        unnamed = find_subspace(replace(problem, counts=None), rng=space_rng)
        if unnamed.exact and unnamed.rank < problem.rounds:
            problem, subspace, told_by = replace(problem, num_clients=unnamed.rank), unnamed, "spectrum"
    with log.mistakes():
        recovery = disaggregate(
            problem, solver, rng=stream(seed, Stage.ATTACK), progress=solving, subspace=subspace
        )
    rejected = None
    by_rank = _posed_by_rank(problem, space_rng) if told_by == "given" else None
    if by_rank is not None:
        other_problem, other_subspace = by_rank
        has_needs = unmet_need(solver_named(solver), has_counts=other_problem.has_counts) is None
        other = disaggregate(
            other_problem,
            solver if has_needs else "auto",
            rng=stream(seed, Stage.ATTACK),
            progress=solving,
            subspace=other_subspace,
        )
        # A client that never took part, or only with another, lowers the rank: that is no contradiction.
        if _separated(other) > _separated(recovery):
            rejected = Rejected(subspace.num_clients, _separated(recovery))
            problem, subspace, told_by = other_problem, other_subspace, "spectrum"
            recovery = _without_proofs(other)
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
        alternatives=try_alternatives(problem, subspace, recovery, solver=solver, seed=seed, progress=trying)
        if alternatives
        else (),
        sums_alone=_sums_alone(problem, subspace, seed) if missing else None,
        rejected=rejected,
        doubts=doubts(log, problem, subspace, recovery),
    )


def _posed_by_rank(
    problem: DisaggregationProblem, rng: np.random.Generator
) -> tuple[DisaggregationProblem, Subspace] | None:
    """The problem with the number of clients that sums without noise have as their rank.

    None if the given number agrees with it, or if noise or too few rounds hide the rank. Counts that name
    more clients than the rank are left out.
    """
    own = find_subspace(replace(problem, counts=None, cohort_sizes=None, num_clients=None), rng=rng)
    occupied = sum(bool(row.any()) for row in problem.aggregates)
    if not own.exact or own.rank in (0, problem.num_clients) or own.rank > _LARGEST_RANK_SHARE * occupied:
        return None
    named = problem.counts is not None and len(problem.counts.clients) <= own.rank
    sizes = problem.cohort_sizes
    fits = sizes is not None and int(np.max(sizes)) <= own.rank
    posed = replace(
        problem,
        counts=problem.counts if named else None,
        cohort_sizes=sizes if fits else None,
        num_clients=own.rank,
    )
    return posed, own


def _without_proofs(recovery: Recovery) -> Recovery:
    """The same columns as consistent only: a proof rests on a number of clients that nobody doubts."""
    proved = recovery.outcome == Outcome.PROVED
    return replace(recovery, outcome=np.where(proved, Outcome.CONSISTENT, recovery.outcome))


def _separated(recovery: Recovery) -> int:
    return int((recovery.outcome != Outcome.UNRESOLVED).sum())


def _doubted(given: ParticipationReport | None, taken: ParticipationReport | None) -> float | None:
    """The standard deviation assumed for counts that claim to be exact; None if they were believed."""
    if given is None or taken is None or (given.sd > 0).any() or not (taken.sd > 0).any():
        return None
    return float(taken.sd.max())


def _sums_alone(problem: DisaggregationProblem, subspace: Subspace, seed: int) -> int:
    """Columns that the sums give without counts and cohort sizes, which may be wrong or misread."""
    alone = replace(problem, counts=None, cohort_sizes=None, num_clients=subspace.num_clients)
    return _separated(disaggregate(alone, rng=stream(seed, Stage.ATTACK), subspace=subspace))

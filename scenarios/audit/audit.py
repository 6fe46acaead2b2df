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
from attacks.disaggregation.space.subspace import Subspace
from attacks.reconciliation import posed_problem
from fedsim.core.progress import Progress, silent
from fedsim.core.seeds import Stage, stream
from scenarios.audit.alternatives import Alternative, try_alternatives
from scenarios.audit.doubts import Doubt, doubts
from scenarios.audit.logs import Log
from scenarios.audit.readings import Reading, Tried, choose, readings, separated


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
    not tried. `tried` holds every number of clients that the attack was tried with, the one shown here first:
    there are two if the spectrum contradicts the input. `doubts` speak against the audit's reading of the
    log. `score` compares the findings with the truth, if the log keeps it. `sizes_known` and
    `layers_known` say whether the log has cohort sizes and the shapes of the model's tensors, and `counts`
    are those that it publishes, unless rounds without a row blur them.
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
    tried: tuple[Tried, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    score: Score | None = None
    sizes_known: bool = False
    layers_known: bool = False
    counts: ParticipationReport | None = None

    @property
    def verdict(self) -> str:
        """`inconclusive` if anything contradicts the audit's reading, else `exposed` or `not separated`."""
        beyond_reach = self.told_by == "given" and not self.separated and self.num_clients >= self.rounds
        if self.doubts or self.rejected is not None or beyond_reach or self.misread:
            return "inconclusive"
        return "exposed" if self.separated else "not separated"

    @property
    def rejected(self) -> Tried | None:
        """A number of clients that the user gave, if the rank of the sums separates more of them."""
        return next((tried for tried in self.tried[1:] if tried.told_by == "given"), None)

    @property
    def misread(self) -> bool:
        """Whether the sums alone give more than the sums with counts and cohort sizes."""
        return self.sums_alone is not None and self.sums_alone > self.separated

    @property
    def separated(self) -> int:
        """Clients whose column was recovered."""
        return separated(self.recovery)

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
                "tried": [asdict(tried) for tried in self.tried],
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
            places=log.places,
        )
    # The same streams as in a simulated run.
    space_rng, _ = stream(seed, Stage.ATTACK).spawn(2)

    def attack(reading: Reading) -> Recovery:
        fits = unmet_need(solver_named(solver), has_counts=reading.problem.has_counts) is None
        # Only a reading that leaves the counts out lacks what the solver needs: the command checked the log.
        chosen_solver = "auto" if reading.told_by == "spectrum" and not fits else solver
        with log.mistakes():
            return disaggregate(
                reading.problem,
                chosen_solver,
                rng=stream(seed, Stage.ATTACK),
                progress=solving,
                subspace=reading.subspace,
            )

    chosen = choose(readings(problem, given=num_clients is not None, rng=space_rng), attack)
    problem, subspace, told_by = chosen.reading.problem, chosen.reading.subspace, chosen.reading.told_by
    recovery = chosen.recovery
    if told_by == "spectrum" and len(chosen.tried) > 1:
        recovery = _without_proofs(recovery)
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
        tried=chosen.tried,
        doubts=doubts(log, chosen),
        sizes_known=log.cohort_sizes is not None,
        layers_known=log.layer_shapes is not None,
        counts=None if log.gaps else log.counts,
    )


def _without_proofs(recovery: Recovery) -> Recovery:
    """The same columns as consistent only: a proof rests on a number of clients that nobody doubts."""
    proved = recovery.outcome == Outcome.PROVED
    return replace(recovery, outcome=np.where(proved, Outcome.CONSISTENT, recovery.outcome))


def _doubted(given: ParticipationReport | None, taken: ParticipationReport | None) -> float | None:
    """The standard deviation assumed for counts that claim to be exact; None if they were believed."""
    if given is None or taken is None or (given.sd > 0).any() or not (taken.sd > 0).any():
        return None
    return float(taken.sd.max())


def _sums_alone(problem: DisaggregationProblem, subspace: Subspace, seed: int) -> int:
    """Columns that the sums give without counts and cohort sizes, which may be wrong or misread."""
    alone = replace(problem, counts=None, cohort_sizes=None, num_clients=subspace.num_clients)
    return separated(disaggregate(alone, rng=stream(seed, Stage.ATTACK), subspace=subspace))

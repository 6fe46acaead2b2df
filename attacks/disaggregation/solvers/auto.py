"""The default: what suits the problem, one method after the other."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.recovery import Columns, Outcome
from attacks.disaggregation.solvers.blind import Blind
from attacks.disaggregation.solvers.gurobi import Gurobi
from attacks.disaggregation.solvers.message_passing import MessagePassing
from attacks.disaggregation.solvers.projection import Projection
from attacks.disaggregation.subspace import Subspace
from attacks.disaggregation.verdict import judge, out_of_reach, resolved
from attacks.disaggregation.windows import Windows
from attacks.disaggregation.workers import Threads, Workers
from fedsim.progress import Progress, silent
from fedsim.settings import Settings

SMALL = 4
"""Variance of counts over the variance of their errors from which a search makes good use of them."""
FEW = 8
"""One in so many clients may be left for a mixed-integer program; more are a hard problem for it too."""


class Auto(Settings):
    """Projections without noise, message passing with it, the blind solver for want of good counts.

    Noise shows in the spectrum: without it the singular values end at the number of clients, up to
    rounding. What projections leave goes to a mixed-integer program where that has a chance: complete
    counts, and few clients left. They share `repair_time_limit_s`; 0 leaves them unresolved. How far a
    program gets within a limit depends on the machine, so that a recovery is reproducible everywhere only
    without it or when nobody is left. Where counts have errors or gaps and leave clients unresolved, columns
    are also sought without them, and counts only say whose is which; the attempt that resolves more stays.
    Where errors drown the counts that is tried first: it is much quicker. `workers` are the projections' own.
    """

    name: Literal["auto"] = "auto"
    repair_time_limit_s: NonNegativeFloat = 20.0
    workers: Workers = Threads()

    def solve(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        """A column and an outcome for every client; see `Columns`."""
        if problem.counts is None:
            return Blind().solve(problem, subspace, rng=rng, progress=progress)
        attempts = [self._with_counts, Blind().solve]
        if problem.windows.complete:
            attempts = attempts[:1]
        elif not _informative(problem.windows):
            attempts.reverse()
        results: list[Columns] = []
        for solve in attempts:
            results.append(solve(problem, subspace, rng=rng, progress=progress))
            if _resolved(results[-1]) == len(problem.clients):
                break
        return max(results, key=_resolved)

    def _with_counts(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        if not subspace.exact:
            return MessagePassing().solve(problem, subspace, rng=rng, progress=progress)
        found = Projection(workers=self.workers).search(problem, subspace, rng=rng, progress=progress)
        left = np.flatnonzero(~out_of_reach(problem, subspace) & ~resolved(subspace, found))
        if (
            problem.windows.complete
            and self.repair_time_limit_s
            and 0 < len(left) <= max(len(problem.clients) // FEW, 1)
        ):
            repair = Gurobi(time_limit_s=self.repair_time_limit_s / len(left), prove=False)
            repair.search(problem, subspace, left, found, progress=progress)
        return judge(problem, subspace, found, solver=self.name, workers=self.workers)


def _informative(windows: Windows) -> bool:
    """Whether the counts' errors are small beside the spread that counts have anyway."""
    known = ~np.isnan(windows.count)
    if not known.any():
        return False
    lengths = np.broadcast_to(windows.lengths, windows.count.shape)[known]
    rate = float(np.clip(windows.count[known].sum() / lengths.sum(), 0, 1))
    return bool((windows.sd[known] ** 2).mean() * SMALL <= (lengths * rate * (1 - rate)).mean())


def _resolved(columns: Columns) -> int:
    return int((columns.outcome != Outcome.UNRESOLVED).sum())

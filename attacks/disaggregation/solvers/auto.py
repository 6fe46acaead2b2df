"""The default: what suits the problem, one method after the other."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.verdict import judge, resolved
from attacks.disaggregation.recovery import Columns, Outcome
from attacks.disaggregation.solvers.blind import QUICK, Blind
from attacks.disaggregation.solvers.gurobi import Gurobi
from attacks.disaggregation.solvers.message_passing import MessagePassing
from attacks.disaggregation.solvers.projection import Projection
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.workers import BlockWorkers, Threads
from fedsim.core.progress import Progress, silent

SMALL = 4
"""Variance of counts over the variance of their errors from which a search makes good use of them."""
KNOWN_ZEROS = 0.05
"""Part of the entries that counts have to fix at zero for message passing to tell how sure it is."""
BRIEF = 1500
"""Iterations of projections where another method is at hand: if they work at all, they mostly do in these."""
MOST, NEARLY_ALL = 0.5, 0.95
"""Share of the clients whose columns under noise need no second attempt, with complete counts and others."""
FEW = 8
"""One in so many clients may be left for a mixed-integer program; more are a hard problem for it too."""


class Auto(AbstractSolver):
    """Projections without noise, message passing with it, the blind solver for want of good counts.

    Noise shows in the spectrum: without it the singular values end at the number of clients, up to
    rounding. What projections leave goes to a mixed-integer program where that has a chance: complete
    counts, and few clients left. They share `repair_time_limit_s`; 0 leaves them unresolved. How far a
    program gets within a limit depends on the machine, so that a recovery is reproducible everywhere only
    without it or when nobody is left. Where counts have errors or gaps and leave columns in doubt, or noise
    leaves most, columns are also sought without counts, which only say whose is which; the attempt that
    resolves more stays, or under noise the one from which more right columns are to be expected. For up to
    144 clients without noise that is done whenever projections leave some, who then get less time: a high
    rate is out of their reach, but not of lattice reduction's. Where counts tell little the search without
    them is tried first: it is much quicker, and surer. `workers` are the projections' own.
    """

    name: Literal["auto"] = "auto"
    repair_time_limit_s: NonNegativeFloat = 20.0
    workers: BlockWorkers = Threads()

    needs_counts: ClassVar[bool] = False
    models_noise: ClassVar[bool] = True
    can_prove: ClassVar[bool] = True

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client."""
        if instance.problem.counts is None:
            return Blind().solve(instance, rng=rng, progress=progress)
        complete, exact_sums = instance.windows.complete, instance.subspace.exact
        without_counts = Blind()
        if complete and exact_sums:
            if not without_counts.reduces_lattice(instance):
                return self._with_counts(instance, rng=rng, progress=progress)
            without_counts = Blind(max_iterations=QUICK)  # reflections know less here than projections do
        attempts = [self._with_counts, without_counts.solve]
        informative = _informative(instance)
        if not informative:
            attempts.reverse()
        first = attempts[0](instance, rng=rng, progress=progress)
        worth = _resolved if exact_sums else _expected
        enough = 1.0 if exact_sums else MOST if complete and informative else NEARLY_ALL
        if worth(first) >= enough * instance.num_columns:
            return first
        return max(first, attempts[1](instance, rng=rng, progress=progress), key=worth)

    def _with_counts(
        self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent
    ) -> Columns:
        if not instance.subspace.exact:
            return MessagePassing().solve(instance, rng=rng, progress=progress)
        complete = instance.windows.complete
        projection = Projection(workers=self.workers)
        if complete and Blind().reduces_lattice(instance):
            projection = Projection(workers=self.workers, max_iterations=BRIEF)
        found = projection.search(instance, rng=rng, progress=progress)
        left = np.flatnonzero(~instance.out_of_reach & ~resolved(instance, found))
        few = max(instance.num_columns // FEW, 1)
        if complete and self.repair_time_limit_s and 0 < len(left) <= few:
            repair = Gurobi(time_limit_s=self.repair_time_limit_s / len(left), prove=False)
            repair.search(instance, left, found, progress=progress)
        return judge(instance, found, solver=self.name, workers=self.workers)


def _informative(instance: Instance) -> bool:
    """Whether a search with the counts is worth more than one without.

    Under noise message passing needs entries that counts fix at zero: it measures its errors on them, and is
    too sure of itself without. Otherwise the counts' own errors must be small beside what counts can tell.
    """
    if not instance.subspace.exact:
        return bool((instance.known == 0).mean() >= KNOWN_ZEROS)
    windows = instance.windows
    known = ~np.isnan(windows.count)
    if not known.any():
        return False
    lengths = np.broadcast_to(windows.lengths, windows.count.shape)[known]
    rate = float(np.clip(windows.count[known].sum() / lengths.sum(), 0, 1))
    return bool(SMALL * (windows.sd[known] ** 2).sum() <= lengths.sum() * rate * (1 - rate))


def _resolved(columns: Columns) -> float:
    return float((columns.outcome != Outcome.UNRESOLVED).sum())


def _expected(columns: Columns) -> float:
    """How many clients' columns are right, if confidence keeps its word."""
    return float(columns.confidence[columns.outcome != Outcome.UNRESOLVED].sum())

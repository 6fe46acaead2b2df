"""The default solver: it chooses a method that suits the problem, and tries a second one if needed."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.known_participation import fits
from attacks.disaggregation.proof.settling import LIKELY_FROM
from attacks.disaggregation.proof.verdict import judge, resolved
from attacks.disaggregation.recovery import UNKNOWN, Columns, Outcome
from attacks.disaggregation.solvers.annealing import MOST_SAMPLING, Annealing, sampling_work
from attacks.disaggregation.solvers.blind import QUICK_REFLECTIONS, Blind
from attacks.disaggregation.solvers.gurobi import Gurobi
from attacks.disaggregation.solvers.joint import GOOD_ATTEMPT, agreement
from attacks.disaggregation.solvers.message_passing import DRIFTING, MessagePassing
from attacks.disaggregation.solvers.projection import Projection
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.solvers.sparse import Sparse
from attacks.disaggregation.workers import BlockWorkers, Threads
from fedsim.core.progress import Progress, silent

INFORMATIVE_RATIO = 4
"""Least variance of the counts, relative to the variance of their errors, for a search with counts first."""
KNOWN_ZEROS = 0.05
"""Least share of entries that the counts fix at zero; message passing measures its errors on them."""
BRIEF_PROJECTIONS = 1500
"""Iteration cap when a fallback exists; successful searches nearly always finish earlier."""
ENOUGH = 0.9
"""Expected share of right columns under noise from which no other method is tried."""
REPAIR_ONE_IN = 8
"""A mixed-integer program gets the columns left over if they are at most one in this many clients; with more
the problem is hard for it too."""


class Auto(AbstractSolver):
    """Zero rows where there are any; else projection, message passing under noise, blind without good counts.

    If rows of the sums are zero in some rounds and not in others, as word vectors are, these come first.

    Noise shows in the spectrum: without it the singular values end at the number of clients, up to rounding.
    If the counts are complete and projection leaves few columns, a mixed-integer program gets these. They
    share `repair_time_limit_s`; 0 leaves them unresolved. How far the program gets depends on the machine, so
    a recovery is reproducible everywhere only without it or if no column is left.

    A second attempt ignores the counts in the search, and uses them only to name the columns. It follows if
    counts have errors or gaps and columns stay open. For up to 144 clients without noise it follows whenever
    projection leaves a column, and projection gets less time: lattice reduction also works at high
    participation rates. If the counts tell little, the search without counts comes first: it is faster and
    more certain.

    Under noise, annealing and the search without counts follow message passing as long as too few columns are
    likely. If annealing would take too long it is left out, and if updates drift so is the search without
    counts: it takes drift for noise, for minutes. If the counts tell little, annealing follows the search
    without counts, or message passing where annealing would take too long. Without noise the attempt with
    more resolved columns wins. Under noise the one does under whose columns the sums are likeliest: a search
    that went wrong can be surer than one that did not. Columns on which good attempts differ lose confidence.
    `workers` are those of the projection.
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
        if instance.traces is None:
            return self._without_traces(instance, rng=rng, progress=progress)
        by_rows = Sparse().solve(instance, rng=rng, progress=progress)
        if instance.underdetermined or _expected(by_rows) >= ENOUGH * instance.num_columns:
            return by_rows
        otherwise = self._without_traces(instance, rng=rng, progress=progress)
        return max(by_rows, otherwise, key=_expected)

    def _without_traces(
        self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent
    ) -> Columns:
        if not instance.subspace.exact:
            return self._noisy(instance, rng=rng, progress=progress)
        complete, without_counts = instance.windows.complete, Blind()
        if complete:
            if not without_counts.reduces_lattice(instance):
                return self._with_counts(instance, rng=rng, progress=progress)
            # Projection knows more than reflections here: these only prepare the lattice reduction.
            without_counts = Blind(max_iterations=QUICK_REFLECTIONS)
        attempts = [self._with_counts, without_counts.solve]
        if not _informative(instance):
            attempts.reverse()
        first = attempts[0](instance, rng=rng, progress=progress)
        if _resolved(first) == instance.num_columns:
            return first
        return max(first, attempts[1](instance, rng=rng, progress=progress), key=_resolved)

    def _noisy(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """The columns of the best method, of those tried until one expects enough right columns."""
        informative, affordable = _informative(instance), sampling_work(instance) <= MOST_SAMPLING
        attempts: list[AbstractSolver] = [Blind()]
        if affordable:
            attempts.append(Annealing())
        if informative:
            attempts = [MessagePassing(), *reversed(attempts)]
        elif not affordable:
            attempts.append(MessagePassing())
        tried: list[Columns] = []
        for attempt in attempts:
            if tried and not affordable and isinstance(attempt, Blind) and _drifting(instance, tried[-1]):
                continue
            tried.append(attempt.solve(instance, rng=rng, progress=progress))
            if _expected(tried[-1]) >= ENOUGH * instance.num_columns:
                break
        return _likeliest(instance, tried)

    def _with_counts(
        self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent
    ) -> Columns:
        complete = instance.windows.complete
        projection = Projection(workers=self.workers)
        if complete and Blind().reduces_lattice(instance):
            projection = Projection(workers=self.workers, max_iterations=BRIEF_PROJECTIONS)
        found = projection.search(instance, rng=rng, progress=progress)
        left = np.flatnonzero(~instance.out_of_reach & ~resolved(instance, found))
        few = max(instance.num_columns // REPAIR_ONE_IN, 1)
        if complete and self.repair_time_limit_s and 0 < len(left) <= few:
            repair = Gurobi(time_limit_s=self.repair_time_limit_s / len(left), prove=False)
            repair.search(instance, left, found, progress=progress)
        return judge(instance, found, solver=self.name, workers=self.workers)


def _informative(instance: Instance) -> bool:
    """Whether a search with the counts promises more than a search without.

    Under noise message passing needs entries that the counts fix at zero: it measures its errors on them, and
    is overconfident without. Without noise the errors of the counts must be small relative to their variance.
    """
    if not instance.subspace.exact:
        return bool((instance.known == 0).mean() >= KNOWN_ZEROS)
    windows = instance.windows
    known = ~np.isnan(windows.count)
    if not known.any():
        return False
    lengths = np.broadcast_to(windows.lengths, windows.count.shape)[known]
    rate = float(np.clip(windows.count[known].sum() / lengths.sum(), 0, 1))
    return bool(INFORMATIVE_RATIO * (windows.sd[known] ** 2).sum() <= lengths.sum() * rate * (1 - rate))


def _likeliest(instance: Instance, tried: list[Columns]) -> Columns:
    """The columns under which the sums are likeliest; those on which good attempts differ are less sure.

    A client without a column explains nothing. In the end it gets the guess of the likeliest attempt that has
    one, and stays unresolved.
    """
    if len(tried) == 1:
        return tried[0]
    models = fits(instance.problem, [_known_ones(found) for found in tried])
    with_misfits = zip((model.misfit() for model in models), tried, strict=True)
    best, *others = [found for _, found in sorted(with_misfits, key=itemgetter(0))]
    good = [found for found in tried if _expected(found) >= GOOD_ATTEMPT * _expected(best)]
    confidence = best.confidence * agreement(best.participation.T, [found.participation.T for found in good])
    doubtful = (best.outcome == Outcome.LIKELY) & (confidence < LIKELY_FROM)
    participation = best.participation
    for other in others:
        participation = np.where(participation == UNKNOWN, other.participation, participation)
    return replace(
        best,
        participation=participation,
        confidence=confidence,
        outcome=np.where(doubtful, Outcome.UNRESOLVED, best.outcome),
        reason=np.where(doubtful, "no column is likely: attempts found different ones", best.reason),
    )


def _drifting(instance: Instance, found: Columns) -> bool:
    """Whether updates drift, in the model of the sums that fits these columns best."""
    (model,) = fits(instance.problem, [_known_ones(found)])
    return model.scales.drift > DRIFTING


def _known_ones(found: Columns) -> NDArray[np.uint8]:
    """(R, K) the participations found, and none of a client without a column."""
    return np.where(found.participation == UNKNOWN, 0, found.participation)


def _resolved(columns: Columns) -> float:
    return float((columns.outcome != Outcome.UNRESOLVED).sum())


def _expected(columns: Columns) -> float:
    """Expected number of right columns, by their confidence."""
    return float(columns.confidence[columns.outcome != Outcome.UNRESOLVED].sum())

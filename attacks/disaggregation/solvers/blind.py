"""Columns with no counts at all: what the sums alone give away.

`reflections` finds the binary columns in or near the space, `lattice` those that are out of its reach, if
there is no noise and not too many clients; `generators` tells single clients' columns from sums of several.
Under noise `decoding` corrects the entries and says how likely they are; where the noise is too strong to
find binary columns one by one, `independence` finds soft ones all together. Nothing here knows a client's
name; counts, if there are any, only say which column is whose.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from attacks.disaggregation.columns import lattice
from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.columns.generators import belief, generators
from attacks.disaggregation.columns.parts import taken_apart
from attacks.disaggregation.counts.lost_updates import with_losses_from
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.ica import LEVEL, independent_columns, one_level, split_in_two
from attacks.disaggregation.noise.matched_filter import decode, from_distances
from attacks.disaggregation.proof.verdict import Candidates, judge
from attacks.disaggregation.recovery import UNKNOWN, Columns, Outcome
from attacks.disaggregation.reflections.random_starts import SAME, ReflectionSearch
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.space.gram import standardised_gram
from attacks.disaggregation.space.gram_corrections import clipped, off_diagonal_space
from fedsim.core.progress import Progress, silent

ANY_RATE = (0.03, 0.1, 0.3)
"""Where the search begins when the cohort sizes do not tell the rate."""
SECOND_LOOK = 300
"""Iterations in the span of unusually busy columns, to see whether they are sums of rarer ones."""
BUSY = 1.4
"""A column is unusually busy if it has this many times the ones of the middle column."""
QUICK = 300
"""Iterations of reflections before lattice reduction has a try: at low rates they are enough."""
REACH = 144
"""Clients up to whom a lattice is reduced: the time grows exponentially with their number."""
EXACT = (2e-5, 2e-5)
NOISY = (1e-3, 0.2)
"""Squared distance from the space per one at which a column is taken, at first and at most. A single wrong
entry is worth one over the number of ones."""
NOISY_ITERATIONS = 3000
SLACK = 0.1
"""Under noise, a column that holds nearly all of another one's ones is taken for a sum with it."""
ENOUGH = 0.9
"""Part of the clients below whose expected number of right columns a second method has a try."""
ROTATIONS = 400
"""Steps of the independent component analysis; it settles in tens of them or, with too few rounds, never."""
LEAST_CONFIDENCE = 0.5
"""A column that is more likely wrong than right is shown, but not stood by."""
ENTRY_ERROR = 0.5
"""Standard deviation of the counts of a column found under noise: an entry may be wrong here and there."""
NO_COLUMN_LEFT = (
    "no column is left for this client: it never took part, always with another, or was not found"
)
WITHOUT_LATTICE = "; lattice reduction would search further: pip install fedsim[lattice]"
HIDDEN = "the noise hides the column"
WHOSE = "somebody's column: the counts do not tell whose"


class Blind(AbstractSolver):
    """Sums, and cohort sizes if the server has them; the clients' columns in any order.

    Without noise `starts` is the number of points that search side by side, `step` the relaxation of their
    reflections, and `max_iterations` bounds the work; what is found lies in the space exactly, and is
    `consistent`. Up to 144 clients a lattice is reduced where reflections are not quick, in blocks of up to
    `max_block` (0 leaves it out; it needs fpylll). With noise, columns are `likely` with the probability that
    all their entries are right.
    """

    name: Literal["blind"] = "blind"
    starts: PositiveInt = 64
    step: PositiveFloat = 0.3
    max_iterations: PositiveInt = 20_000
    max_block: NonNegativeInt = 40

    needs_counts: ClassVar[bool] = False
    models_noise: ClassVar[bool] = True
    can_prove: ClassVar[bool] = True

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client; without counts, in no particular order."""
        if instance.problem.counts is None:
            instance = _pseudonymous(instance)
        if not len(instance.searchable):
            return judge(instance, Candidates.none(instance), solver=self.name)
        search = self._exact if instance.subspace.exact else self._noisy
        return _with_doubtful_names(search(instance, rng, progress))

    def _exact(self, instance: Instance, rng: np.random.Generator, progress: Progress) -> Columns:
        problem, subspace = instance.problem, instance.subspace
        rate, total = _rate(instance), _total(instance)
        rates = np.array(ANY_RATE if rate is None else (rate,))
        search = self._search(subspace.basis, rates, EXACT, rng)
        search.run(min(QUICK, self.max_iterations), progress=progress)
        self._reduce(search, instance, rng, progress)
        every = search.run(self.max_iterations - search.iteration, progress=progress)
        columns = generators(every, total=total)
        size = columns.sum(axis=1, dtype=np.int64)
        busy = columns[size > BUSY * np.median(size)] if len(size) else columns
        if len(busy) > 1:
            basis = np.linalg.qr(busy.T.astype(np.float64))[0]
            rarer = self._search(basis, busy.mean(axis=1) / 2, EXACT, rng).run(SECOND_LOOK, whole=True)
            columns = generators(np.concatenate((columns, rarer)), total=total)
        if problem.counts is None:
            sure = belief(columns, total=total if len(columns) == subspace.rank else None)
            missing = subspace.rank <= REACH and not lattice.available()
            reason = NO_COLUMN_LEFT + (WITHOUT_LATTICE if missing else "")
            return self._columns(instance, columns, sure, Outcome.CONSISTENT, reason)
        whose = attribute(instance.windows, columns).column
        if (whose < 0).any() and instance.windows.exact and _everybody(instance, columns):
            lossy = replace(problem, counts=with_losses_from(problem.counts, columns))
            instance = replace(instance, problem=lossy)
            whose = attribute(instance.windows, columns).column
        named = np.flatnonzero(whose >= 0)
        found = Candidates.none(instance)
        found.offer(named, columns[whose[named]], np.zeros(len(named)))
        return judge(instance, found, solver=self.name)

    def reduces_lattice(self, instance: Instance) -> bool:
        """Whether lattice reduction looks for the columns that reflections do not find."""
        subspace = instance.subspace
        return subspace.exact and bool(self.max_block) and subspace.rank <= REACH and lattice.available()

    def _reduce(
        self,
        search: ReflectionSearch,
        instance: Instance,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        """Tell a search that is not at its end what lattice reduction finds, where that can be done."""
        subspace = instance.subspace
        if search.found == subspace.rank or not self.reduces_lattice(instance):
            return
        for columns in lattice.binary_columns(subspace.basis, max_block=self.max_block, rng=rng):
            search.learn(columns)
            progress(search.found, subspace.rank)
            if search.found == subspace.rank:
                return

    def _search(
        self,
        basis: NDArray[np.float64],
        rates: NDArray[np.float64],
        tolerance: tuple[float, float],
        rng: np.random.Generator,
    ) -> ReflectionSearch:
        return ReflectionSearch(
            basis, rates, tolerance=tolerance, starts=self.starts, step=self.step, rng=rng
        )

    def _noisy(self, instance: Instance, rng: np.random.Generator, progress: Progress) -> Columns:
        subspace = instance.subspace
        gram = standardised_gram(instance.problem.aggregates)
        basis = off_diagonal_space(gram, subspace.rank)
        grams = (gram, clipped(gram, subspace.rank))  # which is better depends on the updates
        rate = _rate(instance)
        rates = np.array(ANY_RATE if rate is None else (rate,))
        search = self._search(basis, rates, NOISY, rng)
        near = search.run(min(self.max_iterations, NOISY_ITERATIONS), progress=progress)
        near = taken_apart(near, slack=SLACK, same=SAME)
        answers = [from_distances(near, basis)]
        if len(near) >= subspace.rank:
            answers += [decode(K, near.T) for K in grams]
        if max(answer.confidence.sum() for answer in answers) < ENOUGH * subspace.rank:
            level = LEVEL if rate is None else one_level(rate)
            soft = independent_columns(basis, level=level, max_iterations=ROTATIONS, rng=rng)
            answers += [decode(K, split_in_two(soft)) for K in grams]
        best = max(answers, key=lambda answer: float(answer.confidence.sum()))
        columns, first = np.unique(best.columns.T, axis=0, return_index=True)
        sure = best.confidence[first]
        surest = np.argsort(-sure, kind="stable")
        return self._columns(instance, columns[surest], sure[surest], Outcome.LIKELY, HIDDEN)

    def _columns(
        self,
        instance: Instance,
        columns: NDArray[np.uint8],
        sure: NDArray[np.float64],
        outcome: Outcome,
        otherwise: str,
    ) -> Columns:
        """The rows of `columns` given to clients: as they come, or by the counts if there are any."""
        windows, K = instance.windows, instance.num_columns
        counted = instance.problem.counts is not None
        whose, named_right = np.arange(K), np.ones(K)
        whose[len(columns) :] = -1
        if counted:
            attribution = attribute(replace(windows, sd=np.hypot(windows.sd, ENTRY_ERROR)), columns)
            whose, named_right = attribution.column, attribution.confidence
        named = np.flatnonzero(whose >= 0)
        participation = np.full((instance.rounds, K), UNKNOWN, dtype=np.uint8)
        participation[:, named] = columns[whose[named]].T
        confidence = np.zeros(K)
        confidence[named] = sure[whose[named]] * named_right[named]
        if counted:
            # A column that contradicts an exact count has a wrong entry, or the wrong name.
            confidence[named[~windows.of(named).meet(columns[whose[named]])]] = 0
        resolved = np.zeros(K, dtype=np.bool_)
        resolved[named] = sure[whose[named]] >= LEAST_CONFIDENCE
        return Columns(
            participation,
            np.where(resolved, outcome, Outcome.UNRESOLVED),
            confidence,
            np.where(resolved, "", otherwise),
            self.name,
        )


def _with_doubtful_names(columns: Columns) -> Columns:
    """The same, with a word about columns that somebody has, though hardly the client who stands there."""
    doubtful = (columns.outcome != Outcome.UNRESOLVED) & (columns.confidence < LEAST_CONFIDENCE)
    return replace(columns, reason=np.where(doubtful & (columns.reason == ""), WHOSE, columns.reason))


def _pseudonymous(instance: Instance) -> Instance:
    """The instance without counts, with as many columns to find as the spectrum has clients.

    If a cohort is larger than that, a column is a group's. Cohort sizes then do not say how often columns
    occur, and are left out.
    """
    sizes, columns = _total(instance), instance.subspace.num_clients
    if sizes is not None and sizes.max() > columns:
        sizes = None
    return replace(instance, problem=replace(instance.problem, num_clients=columns, cohort_sizes=sizes))


def _everybody(instance: Instance, columns: NDArray[np.uint8]) -> bool:
    """Whether these are the columns of all clients beyond doubt: as many, and they add up to the cohorts."""
    total = _total(instance)
    return (
        total is not None
        and len(columns) == instance.num_columns
        and bool((columns.sum(axis=0, dtype=np.int64) == total).all())
    )


def _rate(instance: Instance) -> float | None:
    """How often a client takes part on average, if the server's cohort sizes tell."""
    total = _total(instance)
    if total is None:
        return None
    return float(np.clip(total.mean() / instance.subspace.num_clients, 1e-3, 0.999))


def _total(instance: Instance) -> NDArray[np.int64] | None:
    sizes = instance.problem.cohort_sizes
    return None if sizes is None else np.asarray(sizes, dtype=np.int64)

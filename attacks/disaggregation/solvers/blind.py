"""Columns from the sums alone, without any counts.

Without noise `reflections.random_starts` finds binary columns in the space. `columns.lattice` finds the
others if there are not too many clients. `columns.generators` tells single clients' columns from sums of
several. Under noise `noise.matched_filter` corrects the entries and gives their probabilities. If the noise
is too strong to find binary columns one by one, `noise.ica` finds soft columns all together. If updates
drift, `noise.nameless` finds columns by annealing, with drift in its model. The search never
uses a client's name; counts, if there are any, only say which column belongs to which client.
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
from attacks.disaggregation.noise.nameless import nameless_columns
from attacks.disaggregation.proof.verdict import Candidates, judge
from attacks.disaggregation.recovery import UNKNOWN, Columns, Outcome
from attacks.disaggregation.reflections.random_starts import SAME_COLUMN, ReflectionSearch
from attacks.disaggregation.solvers.annealing import MOST_SAMPLING, VOTERS, Annealing, sampling_work
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.space.gram import standardised_gram
from attacks.disaggregation.space.gram_corrections import clipped, off_diagonal_space
from fedsim.core.progress import Progress, silent

FIRST_RATES = (0.03, 0.1, 0.3)
"""Participation rates of the first starts if the cohort sizes are unknown."""
BUSY_ITERATIONS = 300
"""Iterations in the span of unusually busy columns, which may be sums of rarer ones."""
BUSY = 1.4
"""Number of ones, relative to the median column, above which a column is unusually busy."""
QUICK_REFLECTIONS = 300
"""Iterations of reflections before lattice reduction starts; at low rates they are enough."""
LATTICE_CLIENTS = 144
"""Most clients for lattice reduction: its time grows exponentially with their number."""
EXACT_TOLERANCE = (2e-5, 2e-5)
NOISY_TOLERANCE = (1e-3, 0.2)
"""Squared distance from the space, relative to the number of ones, up to which a column is accepted: at first
and at most. A single wrong entry adds one over the number of ones."""
NOISY_ITERATIONS = 3000
"""Most iterations of reflections under noise."""
INCLUSION_SLACK = 0.1
"""Under noise a column that has all but this share of another's ones is taken for a sum with it."""
ENOUGH_COLUMNS = 0.9
"""Expected share of right columns below which a second method is tried."""
ICA_STEPS = 400
"""Steps of the independent component analysis; it takes tens of them or, with too few rounds, never ends."""
LEAST_CONFIDENCE = 0.5
"""A column with less confidence is shown, but unresolved."""
ENTRY_ERROR = 0.5
"""Standard deviation of the counts of a column found under noise, because single entries may be wrong."""
NO_COLUMN_LEFT = (
    "no column is left for this client: it never took part, always with another, or was not found"
)
WITHOUT_LATTICE = "; lattice reduction would search further: pip install fpylll cysignals"
HIDDEN = "the noise hides the column"
WHOSE = "somebody's column: the counts do not tell whose"


class Blind(AbstractSolver):
    """Works on sums alone, with cohort sizes if the server has them; finds the columns in any order.

    `starts` is the number of points that search in parallel, `step` the relaxation of their reflections, and
    `max_iterations` bounds the work. Without noise a column lies in the space exactly, and is `consistent`.
    For up to 144 clients lattice reduction takes over if reflections are not quick, in blocks of up to
    `max_block` (0 switches it off; it needs fpylll). With noise a column is `likely`, and its confidence is
    the probability that all its entries are right.
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
        given = instance
        if instance.problem.counts is None:
            instance = _pseudonymous(instance)
        if not len(instance.searchable):
            return judge(instance, Candidates.none(instance), solver=self.name)
        if instance.subspace.exact:
            return _with_doubtful_names(self._exact(instance, rng, progress))
        found = self._noisy(instance, rng, progress)
        if given.problem.counts is None and given.problem.cohort_sizes is not None:
            found = self._or_drifting(given, found, rng, progress)
        return _with_doubtful_names(found)

    def _exact(self, instance: Instance, rng: np.random.Generator, progress: Progress) -> Columns:
        problem, subspace = instance.problem, instance.subspace
        rate, total = _rate(instance), _total(instance)
        rates = np.array(FIRST_RATES if rate is None else (rate,))
        search = self._search(subspace.basis, rates, EXACT_TOLERANCE, rng)
        search.run(min(QUICK_REFLECTIONS, self.max_iterations), progress=progress)
        self._reduce(search, instance, rng, progress)
        every = search.run(self.max_iterations - search.iteration, progress=progress)
        columns = generators(every, total=total)
        size = columns.sum(axis=1, dtype=np.int64)
        busy = columns[size > BUSY * np.median(size)] if len(size) else columns
        if len(busy) > 1:
            basis = np.linalg.qr(busy.T.astype(np.float64))[0]
            rarer = self._search(basis, busy.mean(axis=1) / 2, EXACT_TOLERANCE, rng).run(
                BUSY_ITERATIONS, whole=True
            )
            columns = generators(np.concatenate((columns, rarer)), total=total)
        if problem.counts is None:
            sure = belief(columns, total=total if len(columns) == subspace.rank else None)
            missing = subspace.rank <= LATTICE_CLIENTS and not lattice.available()
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
        return (
            subspace.exact
            and bool(self.max_block)
            and subspace.rank <= LATTICE_CLIENTS
            and lattice.available()
        )

    def _reduce(
        self,
        search: ReflectionSearch,
        instance: Instance,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        """Add columns that lattice reduction finds to a search that is not complete."""
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
        rates = np.array(FIRST_RATES if rate is None else (rate,))
        search = self._search(basis, rates, NOISY_TOLERANCE, rng)
        near = search.run(min(self.max_iterations, NOISY_ITERATIONS), progress=progress)
        near = taken_apart(near, slack=INCLUSION_SLACK, same=SAME_COLUMN)
        answers = [from_distances(near, basis)]
        if len(near) >= subspace.rank:
            answers += [decode(K, near.T) for K in grams]
        if max(answer.confidence.sum() for answer in answers) < ENOUGH_COLUMNS * subspace.rank:
            level = LEVEL if rate is None else one_level(rate)
            soft = independent_columns(basis, level=level, max_iterations=ICA_STEPS, rng=rng)
            answers += [decode(K, split_in_two(soft)) for K in grams]
        best = max(answers, key=lambda answer: float(answer.confidence.sum()))
        columns, first = np.unique(best.columns.T, axis=0, return_index=True)
        sure = best.confidence[first]
        surest = np.argsort(-sure, kind="stable")
        return self._columns(instance, columns[surest], sure[surest], Outcome.LIKELY, HIDDEN)

    def _or_drifting(
        self, instance: Instance, found: Columns, rng: np.random.Generator, progress: Progress
    ) -> Columns:
        """What was `found`, or what a search finds that models drift, if that expects more right columns.

        A model that moves blurs the spectrum, so that it shows fewer columns than a cohort has members.
        """
        problem, expected = instance.problem, float(found.confidence.sum())
        largest = int(np.max(np.asarray(problem.cohort_sizes)))
        enough = ENOUGH_COLUMNS * max(len(found.confidence), largest)
        # With cohorts as large as the number of rounds, nothing could be told apart.
        if expected >= enough or largest >= instance.rounds or sampling_work(instance) > MOST_SAMPLING:
            return found
        columns, sure = nameless_columns(
            problem, replicas=VOTERS, cooling=Annealing().cooling, rng=rng, progress=progress
        )
        if sure.sum() <= expected or len(columns) < largest:
            return found
        nameless = replace(instance, problem=replace(problem, num_clients=len(columns)))
        surest = np.argsort(-sure, kind="stable")
        return self._columns(nameless, columns[surest], sure[surest], Outcome.LIKELY, HIDDEN)

    def _columns(
        self,
        instance: Instance,
        columns: NDArray[np.uint8],
        sure: NDArray[np.float64],
        outcome: Outcome,
        otherwise: str,
    ) -> Columns:
        """The rows of `columns` given to clients: in their order, or by the counts if there are any."""
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
    """The same, with a remark about columns that some client has, but probably not this one."""
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
    """Whether these are certainly the columns of all clients: as many, and their sum is the cohort sizes."""
    total = _total(instance)
    return (
        total is not None
        and len(columns) == instance.num_columns
        and bool((columns.sum(axis=0, dtype=np.int64) == total).all())
    )


def _rate(instance: Instance) -> float | None:
    """Mean participation rate of a client, if the cohort sizes are known."""
    total = _total(instance)
    if total is None:
        return None
    return float(np.clip(total.mean() / instance.subspace.num_clients, 1e-3, 0.999))


def _total(instance: Instance) -> NDArray[np.int64] | None:
    sizes = instance.problem.cohort_sizes
    return None if sizes is None else np.asarray(sizes, dtype=np.int64)

"""Columns from the rounds in which rows of the sums are exactly zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.settling import LIKELY_FROM
from attacks.disaggregation.proof.verdict import Candidates, judge
from attacks.disaggregation.recovery import Columns, Outcome
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.holders import Holders
from attacks.disaggregation.sparse.naming import Fits
from attacks.disaggregation.sparse.peeling import peeled
from attacks.disaggregation.sparse.search import Search
from attacks.disaggregation.sparse.traces import Traces
from fedsim.core.progress import Progress, silent

NO_TRACES = "no row of the sums moves in some rounds and stands still in others"
NO_PATTERN = "no pattern of moved rows has this client's counts"
ROWS_OF_ITS_OWN = "rests on rows that moved in exactly these rounds: {}"
SHARED_ROWS = "rests on what rows of several clients have in common"
NAMESAKES = "another client has the same counts: the column may be the other's"


class Sparse(AbstractSolver):
    """Zero rows of the sums, as word vectors have them: works with fewer rounds than clients.

    It needs a model with a table of vectors, of which a client moves only those of its own words. How far the
    model moves does not matter. Noise on every entry takes the zeros away.
    """

    name: Literal["sparse"] = "sparse"

    needs_counts: ClassVar[bool] = True
    needs_zero_rows: ClassVar[bool] = True
    models_noise: ClassVar[bool] = True
    can_prove: ClassVar[bool] = True

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client."""
        found = None
        if instance.traces is not None:
            problem = instance.problem
            sizes = None if problem.cohort_sizes is None else np.asarray(problem.cohort_sizes)
            counts = CountModel(instance.windows, problem.lost, sizes)
            found = columns_from(instance.traces, counts, progress)
        # Counts may settle columns by themselves; the judge knows when.
        base = judge(instance, Candidates.none(instance), solver=self.name, prove=False)
        open_ = base.outcome == Outcome.UNRESOLVED
        participation, outcome = base.participation.copy(), base.outcome.copy()
        sure, reason = base.confidence.copy(), base.reason.astype(object)
        reason[open_] = NO_TRACES if found is None else NO_PATTERN
        if found is not None and instance.traces is not None:
            took = np.flatnonzero(open_ & (found.column >= 0))
            participation[:, took] = found.columns[found.column[took]].T
            sure[took] = found.confidence[took]
            stands = sure[took] >= LIKELY_FROM
            outcome[took[stands]] = Outcome.LIKELY
            reason[took[stands]] = _rests_on(instance.traces, participation[:, took[stands]].T > 0)
            reason[took[~stands]] = NAMESAKES
        progress(int((outcome != Outcome.UNRESOLVED).sum()), len(outcome))
        return Columns(participation, outcome, sure, reason.astype(np.str_), self.name)


def _rests_on(traces: Traces, columns: NDArray[np.bool_]) -> list[str]:
    """For each column (n, rounds), what shows it: rows that moved in just these rounds, or shared ones."""
    rows = dict(zip(map(bytes, np.packbits(traces.patterns, axis=1)), traces.support.tolist(), strict=True))
    own = [rows.get(bytes(column), 0) for column in np.packbits(columns, axis=1)]
    return [ROWS_OF_ITS_OWN.format(number) if number else SHARED_ROWS for number in own]


@dataclass(frozen=True, eq=False)
class Found:
    """`columns` (n, rounds), per client the index of its `column`, −1 for none, and `confidence`."""

    columns: NDArray[np.bool_]
    column: NDArray[np.intp]
    confidence: NDArray[np.float64]


def columns_from(traces: Traces, counts: CountModel, progress: Progress = silent) -> Found:
    """Candidate columns, and which of them belongs to which client.

    Patterns of single clients come first. The columns of other clients are what their rows have in common.
    Exact counts then settle columns between bounds from unions.
    """
    patterns, support = traces.patterns[traces.varying], traces.support[traces.varying]
    search = Search(Holders(patterns, support), counts)
    search.run(progress)
    columns, doubt = search.columns, search.doubt()
    unknown = _chance_of_missing_columns(counts, columns, doubt)
    fits = Fits.of(counts, columns)
    chance = fits.marginals(unknown=unknown, doubt=doubt)
    column = fits.named(chance)
    left = np.flatnonzero(column < 0)
    if len(left) and len(columns):
        more = peeled(patterns, columns, counts.windows, left)
        for client in np.unique(more.client):
            mine = np.flatnonzero(more.client == client)
            column[client] = len(columns) + mine[more.support[mine].argmax()]
        columns = np.concatenate((columns, more.columns))
        doubt = np.concatenate((doubt, more.doubt))
        fits = Fits.of(counts, columns)
        chance = fits.marginals(unknown=unknown, doubt=doubt)
    return Found(columns, column, fits.confidence(column, chance))


def _chance_of_missing_columns(
    counts: CountModel, columns: NDArray[np.bool_], doubt: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(clients,) the likelihood of each client's counts with columns that were not found, summed over these.

    By the `doubt` (n,) about the columns that were found, so many are missing; they are as dense as those.
    """
    everybody = np.arange(counts.windows.clients)
    density = float(columns.mean()) if len(columns) else 0.5
    missing = max(1.0, len(everybody) - float((1 / (1 + doubt)).sum()))
    return missing * counts.chance(np.full(len(everybody), density), everybody)

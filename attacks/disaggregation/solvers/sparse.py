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
from attacks.disaggregation.sparse.atoms import are_atoms
from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.naming import confidence, fitting, named
from attacks.disaggregation.sparse.peeling import peeled
from attacks.disaggregation.sparse.traces import Traces
from fedsim.core.progress import Progress, silent

NO_TRACES = "no row of the sums moves in some rounds and stands still in others"
NO_PATTERN = "no pattern of moved rows has this client's counts"
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
            found = columns_from(instance.traces, CountModel(instance.windows, instance.problem.lost))
        # Counts may settle columns by themselves; the judge knows when.
        base = judge(instance, Candidates.none(instance), solver=self.name, prove=False)
        open_ = base.outcome == Outcome.UNRESOLVED
        participation, outcome = base.participation.copy(), base.outcome.copy()
        sure, reason = base.confidence.copy(), base.reason.astype(object)
        reason[open_] = NO_TRACES if found is None else NO_PATTERN
        if found is not None:
            took = np.flatnonzero(open_ & (found.column >= 0))
            participation[:, took] = found.columns[found.column[took]].T
            sure[took] = found.confidence[took]
            stands = sure[took] >= LIKELY_FROM
            outcome[took[stands]] = Outcome.LIKELY
            reason[took[stands]] = ""
            reason[took[~stands]] = NAMESAKES
        progress(int((outcome != Outcome.UNRESOLVED).sum()), len(outcome))
        return Columns(participation, outcome, sure, reason.astype(np.str_), self.name)


@dataclass(frozen=True, eq=False)
class Found:
    """`columns` (n, rounds), per client the index of its `column`, −1 for none, and `confidence`."""

    columns: NDArray[np.bool_]
    column: NDArray[np.intp]
    confidence: NDArray[np.float64]


def columns_from(traces: Traces, counts: CountModel) -> Found:
    """Candidate columns, and which of them belongs to which client.

    Patterns of single clients come first. The columns of other clients are peeled out of unions with them.
    """
    patterns, support = traces.patterns[traces.varying], traces.support[traces.varying]
    likely = np.flatnonzero(fitting(counts, patterns))
    atoms = likely[are_atoms(patterns, likely)]
    columns = patterns[atoms]
    rows = support[atoms]
    column = named(counts, columns, rows)
    sizes = patterns.sum(axis=1)
    others = np.setdiff1d(np.flatnonzero(sizes <= sizes[atoms].max(initial=0)), likely)
    unions = support[others[are_atoms(patterns, others)]]
    strangers = (unions[None, :] >= rows[:, None]).sum(axis=1)
    weight = np.ones(counts.windows.clients)
    left = np.flatnonzero(column < 0)
    if len(left):
        more = peeled(patterns, columns, counts.windows, left)
        for client in np.unique(more.client):
            mine = np.flatnonzero(more.client == client)
            best = mine[more.support[mine].argmax()]
            column[client] = len(columns) + best
            # Each union that holds the column speaks for it; rivals with as many speak against.
            weight[client] = more.support[best] / (1 + more.support[mine].sum())
        columns = np.concatenate((columns, more.columns))
        rows = np.concatenate((rows, np.maximum(more.support, 1)))
        strangers = np.concatenate((strangers, np.full(len(more.columns), more.tried)))
    sure = weight * confidence(counts, columns, rows, column, strangers=strangers)
    return Found(columns, column, sure)

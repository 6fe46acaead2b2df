"""What solvers under noise have in common: beliefs about all columns at once, and their confidence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from scipy.special import expit

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation, State
from attacks.disaggregation.noise.exchanges import undone
from attacks.disaggregation.proof.settling import LIKELY_FROM
from attacks.disaggregation.proof.verdict import Candidates, judge
from attacks.disaggregation.recovery import Columns, Outcome
from attacks.disaggregation.solvers.solver import AbstractSolver
from fedsim.core.progress import Progress, silent

EXCHANGES = 4
"""Most times that exchanges are judged; all but the last time they are undone, and the rest is repaired."""
MOST_UNRESOLVED = 0.5
"""Share of unresolved clients above which the confidence in the others is called doubtful."""
FEW = "few columns are likely: do not rely on its confidence"
GOOD_ATTEMPT = 0.5
"""Expected number of right columns, relative to the kept attempt, from which an attempt has a vote on it."""
LEAST_FOUND = 0.1
"""Expected share of right columns from which exchanges are looked for."""


class JointSolver(AbstractSolver):
    """A solver that ends with belief propagation over all clients.

    A start takes at most `iterations` steps with `damping` (0: none). Doubtful columns are restarted at most
    `repairs` times, and the others kept. A subclass says in `search` where to start.
    """

    repairs: int = Field(default=12, ge=0)
    iterations: PositiveInt = 60
    damping: float = Field(default=0.5, ge=0, lt=1)

    needs_counts: ClassVar[bool] = True
    models_noise: ClassVar[bool] = True
    can_prove: ClassVar[bool] = True

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client."""
        found = Candidates.none(instance)
        open_ = ~instance.out_of_reach
        confidence = np.zeros(len(open_))
        if open_.any():
            passing = BeliefPropagation(
                instance.problem, open_, iterations=self.iterations, damping=self.damping
            )
            best = self.search(passing, instance.windows, rng=rng, progress=progress)
            found.columns[open_] = best.columns[open_]
            confidence = best.confidence / _namesakes(instance.windows)
            found.reason[open_ & (confidence < LIKELY_FROM)] = (
                "no column is likely: confidence is the best one's"
            )
        return _with_doubts(judge(instance, found, solver=self.name, belief=confidence))

    def settled(self, passing: BeliefPropagation, windows: Windows, state: State) -> State:
        """The state with exchanges of clients undone, repaired; one that remains likely costs confidence.

        Only updates that drift let two clients take each other's place for a while. Where few columns are
        found, it would be too early to ask.
        """
        if state.scales.drift == 0 or passing.found(state) < LEAST_FOUND * passing.open_.sum():
            return state
        for left in reversed(range(EXCHANGES)):
            model = passing.model(state).given(state.columns.T.astype(np.float64), passing.cohort_sizes)
            columns, odds = undone(model, windows, passing.cohort_sizes)
            if not left or np.array_equal(columns, state.columns):
                break
            after = passing.repaired(passing.restarted(state, columns), most=self.repairs)
            taken_back = np.array_equal(after.columns, state.columns)
            state = after
            if taken_back:
                break
        same = (columns == state.columns).all(axis=1)
        return replace(state, confidence=np.where(same, state.confidence * expit(-odds), 0.0))

    @abstractmethod
    def search(
        self, passing: BeliefPropagation, windows: Windows, *, rng: np.random.Generator, progress: Progress
    ) -> State:
        """The beliefs to keep."""


def agreement(best: NDArray[np.uint8], others: Sequence[NDArray[np.uint8]]) -> NDArray[np.float64]:
    """(n,) share of the `others`, each (n, rounds), that give a client the column of the best one."""
    return np.asarray(np.mean([(columns == best).all(axis=1) for columns in others], axis=0))


def _with_doubts(columns: Columns) -> Columns:
    """The same, with a remark about likely columns where most others are not: their confidence is doubtful.

    Where a model moves so far that few columns are found, the confidence has been too high.
    """
    likely = columns.outcome == Outcome.LIKELY
    few = likely.any() and (columns.outcome == Outcome.UNRESOLVED).mean() > MOST_UNRESOLVED
    return replace(columns, reason=np.where(likely & few & (columns.reason == ""), FEW, columns.reason))


def _namesakes(windows: Windows) -> NDArray[np.int64]:
    """(n,) number of clients with the same counts in the same windows, itself included."""
    layout = np.broadcast_to(windows.index, (windows.clients, *windows.index.shape[1:]))
    known = np.nan_to_num(windows.count, nan=-1)
    rows = np.concatenate((layout.reshape(windows.clients, -1), known), axis=1)
    _, group, size = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(size[group], dtype=np.int64)

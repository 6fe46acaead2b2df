"""All columns at once from noisy aggregates, by belief propagation between aggregates and counts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.belief_propagation import GAIN, BeliefPropagation, State
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.proof.settling import LIKELY_FROM
from attacks.disaggregation.proof.verdict import Candidates, judge
from attacks.disaggregation.recovery import Columns
from attacks.disaggregation.solvers.solver import AbstractSolver
from fedsim.core.progress import Progress, silent

ENOUGH_FOUND = 0.9
"""Share of the columns found from which no other attempt is made."""
RESTART_BELOW = 0.9
"""Confidence below which a repair restarts a column."""


class MessagePassing(AbstractSolver):
    """Joint recovery under noise, and with a model that moves from round to round.

    Eigenvalues of the Gram matrix that are `outliers` times as large as a typical large one belong to
    something that all clients share. The values of `outliers` are tried in turn, each with a fixed and with a
    moving model, until nearly every column is found; the attempt that finds most is kept. Each attempt
    restarts doubtful columns at most `repairs` times and keeps the others. A start takes at most `iterations`
    steps with `damping` (0: none).
    """

    name: Literal["message_passing"] = "message_passing"
    outliers: tuple[float, ...] = Field(default=(2.0, 1.0), min_length=1, strict=False)
    repairs: int = Field(default=12, ge=0)
    iterations: PositiveInt = 60
    damping: float = Field(default=0.5, ge=0, lt=1)

    needs_counts: ClassVar[bool] = True
    models_noise: ClassVar[bool] = True
    can_prove: ClassVar[bool] = True

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client. Uses no randomness."""
        found = Candidates.none(instance)
        open_ = ~instance.out_of_reach
        confidence = np.zeros(len(open_))
        if open_.any():
            best = self._best(instance.problem, open_, progress)
            found.columns[open_] = best.columns[open_]
            confidence = best.confidence / _namesakes(instance.windows)
            found.reason[open_ & (confidence < LIKELY_FROM)] = (
                "no column is likely: confidence is the best one's"
            )
        return judge(instance, found, solver=self.name, belief=confidence)

    def _best(self, problem: DisaggregationProblem, open_: NDArray[np.bool_], progress: Progress) -> State:
        """The attempt, repaired, with the highest total confidence in the `open_` clients."""
        passing = BeliefPropagation(problem, open_, iterations=self.iterations, damping=self.damping)
        best: State | None = None
        attempts = list(itertools.product(self.outliers, (False, True)))
        for step, (times, moving) in enumerate(attempts):
            progress(step, len(attempts))
            state = self._repaired(passing, passing.run(passing.start(times, moving=moving)))
            if best is None or passing.found(state) > passing.found(best):
                best = state
            if passing.found(best) >= ENOUGH_FOUND * open_.sum():
                break
        assert best is not None
        progress(len(attempts), len(attempts))
        return best

    def _repaired(self, passing: BeliefPropagation, best: State) -> State:
        """The state after restarts of doubtful columns, as long as these make columns certain."""
        for _ in range(self.repairs):
            doubtful = passing.open_ & (best.confidence < RESTART_BELOW)
            if not doubtful.any():
                break
            expected = best.expected.copy()
            expected[:, doubtful] = passing.left_over(best.expected, doubtful)
            state = passing.run(replace(best, expected=expected))
            gain = passing.found(state) - passing.found(best)
            if gain > 0:
                best = state
            if gain < GAIN:
                break
        return best


def _namesakes(windows: Windows) -> NDArray[np.int64]:
    """(n,) number of clients with the same counts in the same windows, itself included."""
    layout = np.broadcast_to(windows.index, (windows.clients, *windows.index.shape[1:]))
    known = np.nan_to_num(windows.count, nan=-1)
    rows = np.concatenate((layout.reshape(windows.clients, -1), known), axis=1)
    _, group, size = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(size[group], dtype=np.int64)

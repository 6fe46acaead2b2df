"""All columns at once where counts say too little to start from: sampling at falling temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.annealing import Evidence, annealed
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation, State
from attacks.disaggregation.solvers.joint import JointSolver, agreement
from fedsim.core.progress import Progress

MOST_SAMPLING = 2e8
"""Participations × rounds² up to which annealing is tried: 100 clients at a rate of .1 over 270 rounds, which
takes a few minutes."""
CLEAR_NAMES = 0.95
"""Mean confidence in the names by noisy counts from which belief propagation goes on with them."""


class Annealing(JointSolver):
    """Gibbs sampling from a random start, cooled down; belief propagation finishes the columns.

    It needs no count to begin with, so it also works where counts are rare, noisy or mostly missing. Of the
    independent `replicas`, the likeliest is kept; a column on which they differ loses confidence. In the end,
    noisy counts name the columns all together. `cooling` is the factor of the inverse temperature from sweep
    to sweep. `outliers` is that of `message_passing`.
    """

    name: Literal["annealing"] = "annealing"
    outliers: PositiveFloat = 2.0
    replicas: PositiveInt = 3
    cooling: float = Field(default=1.003, gt=1, le=2)

    def search(
        self, passing: BeliefPropagation, windows: Windows, *, rng: np.random.Generator, progress: Progress
    ) -> State:
        """The likeliest replica, whose confidence counts how many replicas agree on a column."""
        evidence = Evidence(windows, passing.prior.T, passing.cohort_sizes)
        start = passing.start(self.outliers, moving=True)
        states: list[State] = []
        misfits: list[float] = []
        for step, stream in enumerate(rng.spawn(self.replicas)):
            progress(step, self.replicas)
            columns, model = annealed(evidence, passing.model(start), cooling=self.cooling, rng=stream)
            observations = start.observations.levelled(model)
            states.append(
                replace(
                    start,
                    observations=observations,
                    scales=model.scales,
                    relative_energy=model.relative_energy,
                    noise=model.noise,
                    columns=columns,
                )
            )
            misfits.append(model.misfit())
        progress(self.replicas, self.replicas)
        likeliest = int(np.argmin(misfits))
        if not _names_are_clear(windows, states[likeliest].columns):
            return _with_doubtful_names(passing, windows, states[likeliest], states)
        states = [
            passing.repaired(passing.restarted(state, state.columns), most=self.repairs) for state in states
        ]
        best = states[likeliest] = self.settled(passing, windows, states[likeliest])
        votes = agreement(best.columns, [state.columns for state in states])
        return replace(best, confidence=best.confidence * votes)


def _names_are_clear(windows: Windows, columns: NDArray[np.uint8]) -> bool:
    """Whether the counts say whose the columns are, as far as any fit.

    Belief propagation decides about one client at a time: if names are doubtful, it gives two clients the
    same column, or each other's.
    """
    if windows.exact:
        return True
    attribution = attribute(windows, columns)
    fits = attribution.column >= 0
    return bool(fits.any() and attribution.confidence[fits].mean() >= CLEAR_NAMES)


def _with_doubtful_names(
    passing: BeliefPropagation, windows: Windows, best: State, states: Sequence[State]
) -> State:
    """The columns of the best state under the names that fit noisy counts best, all together.

    Belief propagation then corrects single entries, unless two clients would have the same column. The
    confidence is the share of the `states` that have a column, under whatever name, times the probability of
    the name. It is 0 if belief propagation would have another column.
    """
    attribution = attribute(windows, best.columns)
    whose, fits = attribution.column.copy(), attribution.column >= 0
    whose[~fits] = np.setdiff1d(np.arange(len(whose)), whose[fits])
    named = best.columns[whose]
    corrected = passing.restarted(best, named).columns
    both = np.concatenate((named, corrected))
    _, group, size = np.unique(both, axis=0, return_inverse=True, return_counts=True)
    new = (size[group.reshape(2, -1)[1]] == 1)[:, None]
    columns = np.where(new, corrected, named)
    found = [{column.tobytes() for column in state.columns} for state in states]
    agree = np.array([np.mean([column.tobytes() in known for known in found]) for column in columns])
    stands = fits & (columns == corrected).all(axis=1)
    return replace(best, columns=columns, confidence=np.where(stands, agree * attribution.confidence, 0.0))


def sampling_work(instance: Instance) -> float:
    """Participations × rounds²: what a sweep takes in which all participations move."""
    sizes = instance.problem.cohort_sizes
    ones = float(instance.expected.sum() if sizes is None else np.sum(sizes))
    return ones * instance.rounds**2

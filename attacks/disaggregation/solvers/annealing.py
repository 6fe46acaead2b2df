"""All columns at once where counts say too little to start from: sampling at falling temperature."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.annealing import Evidence, annealed
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation, State
from attacks.disaggregation.solvers.joint import JointSolver, agreement
from fedsim.core.progress import Progress

MOST_SAMPLING = 2e8
"""Participations × rounds² up to which annealing is tried: 100 clients at a rate of .1 over 270 rounds, which
takes a few minutes."""


class Annealing(JointSolver):
    """Gibbs sampling from a random start, cooled down; belief propagation finishes the columns.

    It needs no count to begin with, so it also works where counts are rare, noisy or mostly missing. Of the
    independent `replicas`, the likeliest is kept; a column on which they differ loses confidence. `cooling`
    is the factor of the inverse temperature from sweep to sweep. `outliers` is that of `message_passing`.
    """

    name: Literal["annealing"] = "annealing"
    outliers: PositiveFloat = 2.0
    replicas: PositiveInt = 3
    cooling: float = Field(default=1.001, gt=1, le=2)

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
            state = passing.restarted(replace(start, scales=model.scales, noise=model.noise), columns)
            states.append(passing.repaired(state, most=self.repairs))
            misfits.append(model.misfit())
        progress(self.replicas, self.replicas)
        likeliest = int(np.argmin(misfits))
        best = states[likeliest] = self.settled(passing, windows, states[likeliest])
        return replace(best, confidence=best.confidence * agreement(best, states))


def sampling_work(instance: Instance) -> float:
    """Participations × rounds²: what a sweep takes in which all participations move."""
    sizes = instance.problem.cohort_sizes
    ones = float(instance.expected.sum() if sizes is None else np.sum(sizes))
    return ones * instance.rounds**2

"""Which of several participation matrices explains noisy sums best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise.belief_propagation import LEAST_ROUND_NOISE, BeliefPropagation
from attacks.disaggregation.noise.leave_one_out import LeaveOneOut
from attacks.disaggregation.problem import DisaggregationProblem

OUTLIERS = 2.0
"""Eigenvalues this many times as large as a typical one belong to what all clients share."""
FITS, STEPS_PER_FIT = 4, 6
"""How often scales and the rounds' noise are fitted in turn, and steps of each fit of the scales."""


def misfits(problem: DisaggregationProblem, matrices: Sequence[NDArray[np.uint8]]) -> list[float]:
    """Minus twice the log-likelihood of the sums per coordinate, given each matrix (rounds, K) of 0 and 1.

    The model of the sums (`round_model`) has updates that drift, and scales that are fitted to each matrix.
    Who has which column does not matter.
    """
    every = np.ones(len(problem.clients), dtype=np.bool_)
    passing = BeliefPropagation(problem, every, iterations=1, damping=0.0)
    start = passing.start(OUTLIERS, moving=True)
    energy = start.observations.energy
    found = []
    for participation in matrices:
        model = passing.model(start).given(participation.astype(np.float64), passing.cohort_sizes)
        for _ in range(FITS):
            model = model.refined(steps=STEPS_PER_FIT)
            others = LeaveOneOut(model)
            noise = model.noise * np.sqrt(others.residual / others.variance)
            model = replace(model, noise=np.clip(noise, LEAST_ROUND_NOISE * energy, energy))
        found.append(model.misfit())
    return found

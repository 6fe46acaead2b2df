"""The model of the sums for a participation matrix that is taken as known: its fit, and its likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise.belief_propagation import (
    LEAST_ENERGY,
    LEAST_ROUND_NOISE,
    MOST_ENERGY,
    BeliefPropagation,
)
from attacks.disaggregation.noise.leave_one_out import LeaveOneOut
from attacks.disaggregation.noise.round_model import RoundModel
from attacks.disaggregation.problem import DisaggregationProblem

OUTLIERS = 2.0
"""Eigenvalues this many times as large as a typical one belong to what all clients share."""
PASSES = 60
"""Most passes of the fit; it usually ends after two or three dozen."""
STEPS_PER_PASS = 4
"""Steps of the fit of scales, noise and levels in one pass, where updates drift."""
LEAST_PROGRESS, WITH_TRAITS = 0.05, 0.005
"""Decrease of the misfit in one pass below which the fit ends, without and with traits of the data: what
these explain is taken over from clients and noise in small steps."""


def fitted(model: RoundModel, energy: NDArray[np.float64]) -> RoundModel:
    """The model with the likeliest scales, energies and noise that a search finds.

    `energy` (R,) is that of the rounds at the model's level, which bounds their noise.
    """
    misfit, loudest = model.misfit(), energy * model.level**2
    enough = WITH_TRAITS if model.scales.traits else LEAST_PROGRESS
    for _ in range(PASSES):
        model = model.likelier(steps=STEPS_PER_PASS)
        bound = loudest / model.level**2
        others = LeaveOneOut(model)
        relative = np.clip(model.relative_energy * np.sqrt(others.energy_ratio()), LEAST_ENERGY, MOST_ENERGY)
        noise = model.noise * np.sqrt(others.residual / others.variance)
        model = replace(
            model,
            relative_energy=relative / relative.mean(),
            noise=np.clip(noise, LEAST_ROUND_NOISE * bound, bound),
        )
        before, misfit = misfit, model.misfit()
        if before - misfit < enough:
            break
    return model


def fits(problem: DisaggregationProblem, matrices: Sequence[NDArray[np.uint8]]) -> list[RoundModel]:
    """The model of the sums, fitted to each matrix (rounds, K) of 0 and 1.

    Updates drift in the model unless the fit finds that they rest. Who has which column does not matter. The
    `misfit` of a model is minus twice the log-likelihood of the sums per coordinate.
    """
    every = np.ones(len(problem.clients), dtype=np.bool_)
    passing = BeliefPropagation(problem, every, iterations=1, damping=0.0)
    start = passing.start(OUTLIERS, moving=True)
    model = passing.model(start)
    given = (model.given(matrix.astype(np.float64), passing.cohort_sizes) for matrix in matrices)
    return [fitted(each, start.observations.energy) for each in given]

"""The sums as the model of rounds takes them: whitened, levelled, with what all clients share set apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise.round_model import RoundModel
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.gram_corrections import level_rounds, outliers
from attacks.disaggregation.space.traits import trait_profiles
from attacks.disaggregation.space.whitening import whitened_gram

TYPICAL_EIGENVALUE = 0.15
"""Rank of the eigenvalue that outliers are compared with, relative to the number of clients."""
MEAN_AMPLITUDE = 10.0
"""Amplitude of the subtracted common mean, far above everything else: its prior is flat."""
ROUNDS_PER_PLACE = 10
"""Rounds for each direction in which the clients' common mean may turn with the model."""


@dataclass(frozen=True, eq=False)
class Observations:
    """The aggregates in one attempt: `gram` (R, R), the `shared` profiles (R, q) in it, and `energy` (R,).

    `traits` (R, q) are how much of each trait of the data the rounds hold, if the attempt asks. The energy of
    a round excludes the shared part. At the start its sum is the number of rounds; since then the rounds may
    have been divided by a `level` (R,).
    """

    gram: NDArray[np.float64]
    shared: NDArray[np.float64]
    energy: NDArray[np.float64]
    traits: NDArray[np.float64]
    level: NDArray[np.float64]

    def levelled(self, model: RoundModel) -> Observations:
        """The same, at the levels of a refined model."""
        energy = self.energy * (self.level / model.level) ** 2
        return Observations(model.gram, model.shared, energy, self.traits, model.level)


class PreparedSums:
    """The sums of a problem; each Gram matrix, for fixed and for moving models, is computed once.

    `sizes` (R,) are the cohorts', or None if the server does not know them; `expected_sizes` (R,) are those
    that the counts suggest.
    """

    def __init__(
        self,
        problem: DisaggregationProblem,
        *,
        expected_sizes: NDArray[np.float64],
        sizes: NDArray[np.float64] | None,
    ) -> None:
        self._problem, self._expected_sizes, self._sizes = problem, expected_sizes, sizes
        self._rounds = len(expected_sizes)
        self._course = _course(problem.places, self._rounds)
        self._levelled: dict[bool, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def _gram(self, *, moving: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The whitened Gram matrix (R, R) without a trend of its energy, and the rounds' scales (R,)."""
        if moving not in self._levelled:
            problem, sizes = self._problem, self._sizes
            shapes: Sequence[tuple[int, ...]] = problem.layer_shapes or ((problem.dim,),)
            gram = whitened_gram(problem.aggregates, sizes, shapes, moving=moving)
            self._levelled[moving] = level_rounds(gram, self._expected_sizes if sizes is None else sizes)
        return self._levelled[moving]

    def observed(self, times: float, *, moving: bool) -> Observations:
        """What an attempt works on; eigenvalues above `times` a typical one are shared profiles."""
        levelled, level = self._gram(moving=moving)
        typical = max(1, round(TYPICAL_EIGENVALUE * self._problem.windows.clients))
        excess, profiles = outliers(levelled, typical=typical, times=times)
        total = np.trace(levelled)
        scale = self._rounds / (total - excess.sum()) if total else 1.0
        gram, shared = scale * levelled, profiles * np.sqrt(scale * excess)
        energy = np.diag(gram) - (shared**2).sum(axis=1)
        if self._sizes is not None:
            mean = MEAN_AMPLITUDE * (level * self._sizes)[:, None] * self._course
            shared = np.concatenate((shared, mean), axis=1)
        # An empty round gets a little energy, so that its noise is not zero.
        energy = np.maximum(energy, 1e-6 * energy.mean())
        return Observations(gram, shared, energy, self._traits(moving=moving), np.ones(self._rounds))

    def _traits(self, *, moving: bool) -> NDArray[np.float64]:
        problem = self._problem
        if not moving or problem.layer_shapes is None:
            return np.zeros((self._rounds, 0))
        return trait_profiles(problem.aggregates, self._sizes, problem.layer_shapes)


def _course(places: NDArray[np.float64] | None, rounds: int) -> NDArray[np.float64]:
    """(R, 1+q) what multiplies the common mean of the updates, and how it turns with the model.

    Training pulls the model back to where it belongs, whoever trains, and the more so the further the last
    cohort has moved it. To first order, the mean update is μ + C w with the model w. Only the directions in
    which the model moves most are used: every direction takes the evidence of a round.
    """
    always = np.ones((rounds, 1))
    if places is None:
        return always
    directions, _, _ = np.linalg.svd(places - places.mean(axis=0), full_matrices=False)
    return np.concatenate((always, np.sqrt(rounds) * directions[:, : rounds // ROUNDS_PER_PLACE]), axis=1)

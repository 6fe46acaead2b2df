"""Simulated annealing of the participation matrix, for counts that say too little for belief propagation.

Belief propagation starts from the counts: if these are rare, noisy or missing, all clients look alike, and it
does not know where to begin. Gibbs sampling (`gibbs`) begins with a random matrix and cools down. The
temperature is the number of independent coordinates that the likelihood counts: the fewer, the hotter.
Columns take shape before their names are settled, so names are assigned again and again: the whole column of
a client moves to another one if the counts fit better. Exact counts are given an error, or hardly anything
could move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.count_errors import padded_weights
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.gibbs import flip_entries, swap_tails
from attacks.disaggregation.noise.gibbs_stretches import swap_stretches
from attacks.disaggregation.noise.leave_one_out import LeaveOneOut
from attacks.disaggregation.noise.round_model import RoundModel

COUNT_ERROR = 1.0
"""Least standard deviation of a count while columns take shape."""
COHORT_VARIANCE = 1.0
"""Variance allowed meanwhile between a cohort's size and its participants."""
LEAST_PRIOR = 1e-3
"""Least prior probability of either value of an entry."""
FIRST_COORDINATES = 30.0
"""Coordinates at the start, where everything moves."""
HOT, SHAPED, COLD, FROZEN = 0.7, 0.05, 0.003, 0.002
"""Share of the participations that change in a sweep: above HOT nothing takes shape, and from SHAPED on
columns have a shape. Below COLD hardly anything is left to find, so cooling is faster there. Below FROZEN it
ends."""
HOT_COOLING, COLD_COOLING = 1.04, 1.02
"""Factors of the coordinates from sweep to sweep in the hot and in the cold phase."""
REHEATING = 0.4
"""Factor of the coordinates when columns have taken shape."""
MOST_COORDINATES = 1e5
"""Coordinates at which the annealing ends in any case."""
SHAPELESS = 1.2
"""Share of the participations that change in a sweep above which no column has begun to take shape:
exchanges would be wasted."""
SWEEPS_PER_EXCHANGE = 5
"""Sweeps after which all pairs of clients are offered an exchange of any stretch."""
SWEEPS_PER_FIT = 10
"""Sweeps after which names, scales and noise are fitted again and both inverses are computed anew: rounding
errors add up over the updates in place."""
QUIET, MEMORY = 0.02, 0.1
"""Changes of a round per sweep below which it is visited in one sweep of ten, and the weight that the last
sweep has in this figure."""
LEAST_NOISE, MOST_NOISE = 0.02, 1.4
"""Bounds of a round's noise relative to that of the given model."""
LEAST_ENERGY, MOST_ENERGY = 0.2, 5.0
"""Bounds of a client's energy relative to the mean."""
STEPS_PER_FIT = 4
"""Steps of each fit: the matrix changes while it goes on."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the published counts say, prepared for sampling.

    `windows` of the clients; `prior` (clients, rounds): probability of an entry by the counts; `cohort_sizes`
    (rounds,), or None if the server does not know them.
    """

    windows: Windows
    prior: NDArray[np.float64]
    cohort_sizes: NDArray[np.float64] | None


def annealed(
    evidence: Evidence, model: RoundModel, *, cooling: float, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], RoundModel]:
    """Columns (clients, rounds) from a random start, and the model with scales and noise fitted to them.

    `cooling` is the factor of the coordinates from sweep to sweep while columns take shape, and while they
    heal. Of the given model's design only the traits are used.
    """
    start = (rng.random(evidence.prior.shape) < evidence.prior).astype(np.uint8)
    chain = _Chain(evidence, start, model)
    coordinates = _shaped(chain, cooling=cooling, rng=rng)
    _healed(chain, REHEATING * coordinates, cooling=cooling, rng=rng)
    return chain.P, chain.model


def _shaped(chain: _Chain, *, cooling: float, rng: np.random.Generator) -> float:
    """Cool a chain until columns have taken shape, and return the coordinates at which they have."""
    coordinates, sweeps = FIRST_COORDINATES, 0
    while coordinates < MOST_COORDINATES and (moved := chain.sweep(coordinates, rng)) >= SHAPED:
        chain.join(coordinates, rng)
        sweeps += 1
        coordinates *= HOT_COOLING if moved >= HOT else cooling
        if sweeps % SWEEPS_PER_EXCHANGE == 0 and moved < SHAPELESS:
            chain.exchange(coordinates, rng)
        if sweeps % SWEEPS_PER_FIT == 0:
            chain.fit()
    return coordinates


def _healed(chain: _Chain, coordinates: float, *, cooling: float, rng: np.random.Generator) -> None:
    """Cool a chain with columns again, from warmer on, until nothing moves.

    Columns take shape all at once, far below the temperature at which they melt, and with many faults. The
    further it cools, the closer known counts and cohort sizes are kept to. Every client has its own energy.
    Pieces are joined by then: what is left to exchange, the exchanges of stretches find.
    """
    moved, sweeps, sharpness = 1.0, 0, 1.0
    while coordinates < MOST_COORDINATES and moved >= FROZEN:
        sweeps += 1
        everywhere = sweeps % SWEEPS_PER_FIT == 0
        if sweeps % SWEEPS_PER_EXCHANGE == 0 and moved < SHAPELESS:
            chain.exchange(coordinates, rng)
        if everywhere:
            chain.sharpen(sharpness)
            chain.fit(equal_energies=False)
        moved = chain.sweep(coordinates, rng, everywhere=everywhere)
        factor = cooling if moved > COLD else COLD_COOLING
        coordinates *= factor
        sharpness *= factor**2 if moved < SHAPED else 1.0
    chain.fit(equal_energies=False)


class _Chain:
    """A matrix `P` (clients, rounds), its `model`, and everything that a sweep keeps up to date."""

    def __init__(self, evidence: Evidence, P: NDArray[np.uint8], model: RoundModel) -> None:
        windows, clients = evidence.windows, len(P)
        self.P, self.model = P, replace(model, relative_energy=np.ones(clients))
        self._windows, self._changed = windows, np.ones(P.shape[1])
        self._window = np.ascontiguousarray(np.broadcast_to(windows.window_of_round, P.shape), dtype=np.int64)
        prior = np.clip(evidence.prior.mean(), LEAST_PRIOR, 1 - LEAST_PRIOR)
        self._odds = np.full(P.shape, np.log(prior / (1 - prior)))
        # Without known sizes the common mean has the expected ones: they stay when participations move.
        self._known_sizes = evidence.cohort_sizes is not None
        self._sizes = evidence.cohort_sizes if self._known_sizes else evidence.prior.sum(axis=0)
        self.sharpen(1.0)
        self._noise_bounds = np.outer((LEAST_NOISE, MOST_NOISE), model.noise * model.level**2)
        self._pairs = np.stack(np.triu_indices(clients, 1), axis=1).astype(np.int64)
        self._prepare()

    def sharpen(self, factor: float) -> None:
        """Divide the variance that known counts and cohort sizes are given by this factor."""
        self._weight = padded_weights(self._windows, least_sd=COUNT_ERROR / np.sqrt(factor))
        self._counts = self._window, self._weight, self._odds
        self._cohort_precision = factor / COHORT_VARIANCE if self._known_sizes else 0.0

    def sweep(self, coordinates: float, rng: np.random.Generator, *, everywhere: bool = True) -> float:
        """Visit the entries once; return the share of the participations that changed.

        Not `everywhere`: only in rounds in which entries changed lately.
        """
        rounds = np.flatnonzero(everywhere | (self._changed >= QUIET))
        changed = flip_entries(
            self.P,
            self._W,
            self._H,
            self._kernel,
            self._energies,
            *self._counts,
            self._missing,
            self._cohort_precision,
            coordinates,
            rng.permutation(len(self.P)),
            rounds,
            rng.random(self.P.shape),
        )
        self._changed[rounds] += MEMORY * (changed[rounds] - self._changed[rounds])
        return float(changed.sum() / max(self.P.sum(dtype=np.int64), 1))

    def join(self, coordinates: float, rng: np.random.Generator) -> int:
        """Visit every pair once, and let it exchange its columns from some round on; return the exchanges."""
        return self._swap(swap_tails, coordinates, rng)

    def exchange(self, coordinates: float, rng: np.random.Generator) -> int:
        """Visit every pair once, and let it exchange any stretch; return the number of exchanges."""
        return self._swap(swap_stretches, coordinates, rng)

    def _swap(self, swap: Callable[..., int], coordinates: float, rng: np.random.Generator) -> int:
        pairs = self._pairs[rng.permutation(len(self._pairs))]
        state = self.P, self._W, self._H, self._position, self._energies
        return swap(*state, *self._counts, coordinates, pairs, rng.random(pairs.shape))

    def fit(self, *, equal_energies: bool = True) -> None:
        """Give columns the names that fit the counts best; fit scales, noise and perhaps energies to P."""
        self._name()
        self.model = self._given().refined(steps=STEPS_PER_FIT)
        # Each round has its own noise. The square root never lowers the likelihood, as for the energies.
        others = LeaveOneOut(self.model)
        noise = self.model.noise * np.sqrt(others.residual / others.variance)
        least, most = self._noise_bounds / self.model.level**2
        self.model = replace(self.model, noise=np.clip(noise, least, most))
        if not equal_energies:
            # A client without any participation tells nothing about its energy.
            ratio = np.where(self.P.any(axis=1), others.energy_ratio(), 1.0)
            energy = np.clip(self.model.relative_energy * np.sqrt(ratio), LEAST_ENERGY, MOST_ENERGY)
            self.model = replace(self.model, relative_energy=energy / energy.mean())
        self._prepare()

    def _name(self) -> None:
        from scipy.optimize import linear_sum_assignment

        clients, windows, _ = self._weight.shape
        fit = np.empty((clients, clients))
        for k in range(clients):
            inside = np.zeros((self.P.shape[1], windows), dtype=np.int64)
            inside[np.arange(len(inside)), self._window[k]] = 1
            fit[k] = self._weight[k, np.arange(windows), self.P @ inside].sum(axis=1)
        whose = linear_sum_assignment(fit, maximize=True)[1]
        self.P = np.ascontiguousarray(self.P[whose])
        self.model = replace(self.model, relative_energy=self.model.relative_energy[whose])

    def _given(self) -> RoundModel:
        return self.model.given(self.P.T.astype(np.float64), self._sizes)

    def _prepare(self) -> None:
        """Compute κ, Ω⁻¹, Ω⁻¹KΩ⁻¹ and the missing participants of every cohort from P."""
        rounds = self.P.shape[1]
        self._position = self.model.scales.position(rounds)
        kernel = self.model.scales.kernel(rounds)
        self._kernel = np.ones((rounds, rounds)) if kernel is None else kernel
        model = self._given()
        self._energies = model.energies[: model.clients].copy()
        self._W = np.ascontiguousarray(model.inverse())
        self._H = np.ascontiguousarray(self._W @ model.gram @ self._W)
        self._missing = self._sizes - self.P.sum(axis=0, dtype=np.float64)

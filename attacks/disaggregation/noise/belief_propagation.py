"""Belief propagation between aggregates and counts, which recovers columns under noise.

Two kinds of evidence take turns. *Aggregates*: given everybody's expected participation, each client's update
is estimated from all rounds but one, and detected in that one. *Counts*: the evidence for single entries
becomes the posterior mean over windows with the right number of ones, which is the next expected
participation. Entries known to be zero calibrate how far to trust the evidence (`error_scale`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.window_posterior import WindowPosterior
from attacks.disaggregation.noise.detection import detect
from attacks.disaggregation.noise.error_scale import (
    deviation_of_mixture,
    enough_zeros,
    log_odds_of_one,
    variance_from_zeros,
    variance_of_ones,
)
from attacks.disaggregation.noise.leave_one_out import LeaveOneOut
from attacks.disaggregation.noise.prepared_sums import Observations, PreparedSums
from attacks.disaggregation.noise.round_model import RoundModel, Scales
from attacks.disaggregation.problem import DisaggregationProblem

BLOCK_ENTRIES = 1 << 25
"""Numbers in memory for one block of rounds (256 MB)."""
FIRST_NOISE, FIRST_SIGNAL = 0.7, 0.3
"""Shares of noise and signal in a round's energy at the start."""
FIRST_TRAITS = 0.1
"""Energy of a trait at the start, relative to that of a client's update."""
FIRST_DIMENSION = 1000.0
"""Independent coordinates of an update assumed at the start, if it has that many."""
LEAST_ROUND_NOISE = 1e-3
"""Least noise of a round, relative to its energy."""
LEAST_VARIANCE = 0.005
"""Least variance of an open entry. Without it, wrong beliefs become certain and confirm each other."""
LEAST_ENERGY, MOST_ENERGY = 0.05, 20.0
"""Bounds of a client's energy relative to the mean over the clients."""
TRUST, TRUST_WITHOUT_ZEROS = 0.85, 0.5
"""Share of the evidence from which confidence is computed: the estimates of different rounds are not quite
independent. Without known zeros nothing reveals an update that is a mixture of two clients'. Both values were
calibrated on development seeds, apart from those of the tests."""
MOVING_DRIFT = 1.0
"""Total drift from which an attempt with a moving model starts."""
FIRST_FIT = 2
"""Iterations before the scales of updates and noise are fitted; until then beliefs come from counts alone."""
FITS_ONE_IN = 4
"""Iterations per fit once the noise has cooled down: scales hardly change then."""
STEPS_PER_FIT = 4
"""Steps of such a fit where updates drift: their course and loudness are fitted as well."""
NOISE_COOLING = 6
"""Iterations in which the assumed noise may fall by a factor e, so that evidence gains weight slowly."""
BELIEF_TOLERANCE = 5e-3
"""Largest change of an expected participation at which an attempt has converged."""
EXPECTED_WRONG = 1e-3
"""Expected number of wrong columns at which an attempt ends."""
GAIN = 0.3
"""Least increase of the expected number of right columns that makes an effort worthwhile."""
RESTART_BELOW = 0.9
"""Confidence below which a repair restarts a column."""
ITERATIONS_WITHOUT_GAIN = 10
"""Iterations without a gain after which an attempt ends."""


@dataclass(frozen=True, eq=False)
class State:
    """The beliefs about P after some iterations, and the parameters of the model of the aggregates.

    `expected` (R, n) participation; `relative_energy` (n,) and `noise` (R,) as in `RoundModel`; `dimension`:
    effective number of independent coordinates of an update; `columns` (n, R) the most probable ones, and
    `confidence` (n,) their probability.
    """

    observations: Observations
    expected: NDArray[np.float64]
    scales: Scales
    relative_energy: NDArray[np.float64]
    noise: NDArray[np.float64]
    dimension: float
    columns: NDArray[np.uint8]
    confidence: NDArray[np.float64]
    iteration: int = 0

    def after(self, columns: NDArray[np.uint8], model: RoundModel) -> State:
        """The state with these columns and the model that was fitted to them."""
        return replace(
            self,
            observations=self.observations.levelled(model),
            scales=model.scales,
            relative_energy=model.relative_energy,
            noise=model.noise,
            columns=columns,
        )


class BeliefPropagation:
    """The iteration, with everything that all attempts share. Matrices are rounds × clients, as P is.

    `open_` (n,) marks the clients whose columns are wanted.
    """

    def __init__(
        self, problem: DisaggregationProblem, open_: NDArray[np.bool_], *, iterations: int, damping: float
    ) -> None:
        windows = problem.windows
        self.open_, self.iterations, self.damping = open_, iterations, damping
        self.rounds, self.clients = windows.rounds, windows.clients
        everyone = problem.num_clients in (None, self.clients)
        self.cohort_sizes = (
            np.asarray(problem.cohort_sizes, dtype=np.float64)
            if problem.cohort_sizes is not None and everyone
            else None
        )
        rates = windows.expected()
        if self.cohort_sizes is not None and not problem.has_counts:
            rates = np.broadcast_to(self.cohort_sizes / self.clients, rates.shape)
        self.prior = rates.T
        self.known_zero = (windows.known() == 0).T
        self.zeros_known = enough_zeros(self.known_zero)
        self.trust = TRUST if self.zeros_known else TRUST_WITHOUT_ZEROS
        self.entries = problem.dim
        self.posterior = WindowPosterior(windows, np.clip(rates, 1e-3, 1 - 1e-3))
        self._problem = problem
        self._sums = PreparedSums(problem, expected_sizes=self.prior.sum(axis=1), sizes=self.cohort_sizes)

    def start(self, times: float, *, moving: bool = False) -> State:
        """The state before any evidence; eigenvalues above `times` a typical one are modelled as shared.

        If the model is `moving`, the aggregates are whitened around each time, and updates drift from the
        start: the fit of a fixed model rarely discovers drift by itself.
        """
        observations = self._sums.observed(times, moving=moving)
        energy = FIRST_SIGNAL * self.rounds / max(float(self.prior.sum()), 1.0)
        return State(
            observations=observations,
            expected=self.prior,
            scales=Scales(
                client=energy,
                mean=energy,
                traits=FIRST_TRAITS * energy if observations.traits.size else 0.0,
                drift=MOVING_DRIFT if moving else 0.0,
            ),
            relative_energy=np.ones(self.clients),
            noise=FIRST_NOISE * observations.energy,
            dimension=min(FIRST_DIMENSION, self.entries),
            columns=np.zeros((self.clients, self.rounds), dtype=np.uint8),
            confidence=np.zeros(self.clients),
        )

    def left_over(self, expected: NDArray[np.float64], clients: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(R, k) the expected participation of some `clients` (n,) if all others are as `expected` (R, n).

        If cohort sizes are known, it is the missing part of each cohort, shared in proportion to the counts:
        the column itself if one client is left. The counts alone could lead back to the same wrong column.
        """
        prior = self.prior[:, clients]
        if self.cohort_sizes is None:
            return prior
        missing = self.cohort_sizes - expected[:, ~clients].sum(axis=1)
        share = missing / np.maximum(prior.sum(axis=1), 1e-9)
        return np.asarray(np.clip(prior * share[:, None], 0, 1))

    def found(self, state: State) -> float:
        """The expected number of right columns among the open clients."""
        return float(state.confidence[self.open_].sum())

    def run(self, state: State) -> State:
        """Iterate until beliefs converge or no column is gained; return the most certain late state."""
        best, goal, since = state, 0.0, 0
        for iteration in range(1, self.iterations + 1):
            after = self.step(state)
            # A column that has just changed has no confidence yet: a start from the truth needs another step.
            converged = np.abs(after.expected - state.expected).max() < BELIEF_TOLERANCE and np.array_equal(
                after.columns, state.columns
            )
            state, found = after, self.found(after)
            if converged or found > self.open_.sum() - EXPECTED_WRONG:
                return state
            if iteration <= 2 * NOISE_COOLING or found >= self.found(best):
                best = state
            goal, since = (found + GAIN, 0) if found >= goal else (goal, since + 1)
            if iteration > 2 * NOISE_COOLING and since >= ITERATIONS_WITHOUT_GAIN:
                break
        return best

    def repaired(self, best: State, *, most: int) -> State:
        """The state after restarts of doubtful columns, as long as these make columns certain."""
        for _ in range(most):
            doubtful = self.open_ & (best.confidence < RESTART_BELOW)
            if not doubtful.any():
                break
            expected = best.expected.copy()
            expected[:, doubtful] = self.left_over(best.expected, doubtful)
            state = self.run(replace(best, expected=expected))
            gain = self.found(state) - self.found(best)
            if gain > 0:
                best = state
            if gain < GAIN:
                break
        return best

    def restarted(self, state: State, columns: NDArray[np.uint8]) -> State:
        """The iteration from given `columns` (n, R), with the scales and noise of a `state`, cooled down."""
        cooled = FIRST_FIT + math.ceil(NOISE_COOLING * math.log(FIRST_NOISE / LEAST_ROUND_NOISE))
        expected, iteration = columns.T.astype(np.float64), max(state.iteration, cooled)
        return self.run(replace(state, expected=expected, columns=columns, iteration=iteration))

    def model(self, state: State) -> RoundModel:
        """The model of the aggregates that belongs to a state."""
        observations = state.observations
        prior = np.maximum(state.expected * (1 - state.expected), LEAST_VARIANCE)
        prior = np.where(self.known_zero, 0.0, prior)
        sizes = state.expected.sum(axis=1) if self.cohort_sizes is None else self.cohort_sizes
        design = np.concatenate((state.expected, sizes[:, None], observations.traits), axis=1)
        return RoundModel(
            observations.gram,
            design,
            prior,
            state.scales,
            state.relative_energy,
            state.noise,
            observations.shared,
            observations.level,
        )

    def step(self, state: State) -> State:
        """One exchange of messages between aggregates and counts."""
        observations, model = state.observations, self.model(state)
        relative_energy = state.relative_energy
        if FIRST_FIT <= state.iteration < 2 * NOISE_COOLING:
            model = model.fitted()
        elif state.iteration % FITS_ONE_IN == 0:
            model = model.likelier(steps=STEPS_PER_FIT)
            observations = observations.levelled(model)
        others = LeaveOneOut(model)
        if state.iteration >= FIRST_FIT:
            relative_energy = np.clip(
                relative_energy * np.sqrt(others.energy_ratio()), LEAST_ENERGY, MOST_ENERGY
            )
        estimate, variance = self._detected(model, others, state.dimension)
        scale = self._error_scale(estimate, variance, state.dimension)
        evidence = self._evidence(estimate, variance * scale, state.columns.T == 1)
        mean = self.posterior.mean(evidence.T).T
        trusted = self.trust * evidence.T
        columns, log_chance = self.posterior.best(trusted)
        # The evidence could be about any other client's column, which has these counts only by chance.
        own = 1 / (1 + self.clients * np.exp(-np.clip(self.posterior.support(trusted), -60, 60)))
        floor = max(FIRST_NOISE * np.exp(-state.iteration / NOISE_COOLING), LEAST_ROUND_NOISE)
        noise = model.noise * np.sqrt(others.residual / others.variance)
        return State(
            observations=observations,
            expected=self.damping * state.expected + (1 - self.damping) * mean,
            scales=model.scales,
            relative_energy=relative_energy / relative_energy.mean(),
            noise=np.clip(noise, floor * observations.energy, observations.energy),
            dimension=float(np.clip(state.dimension / np.sqrt(np.median(scale)), 1, self.entries)),
            columns=columns,
            # A column that this step has changed has no confidence yet.
            confidence=np.where((columns == state.columns).all(axis=1), own * np.exp(log_chance), 0.0),
            iteration=state.iteration + 1,
        )

    def _detected(
        self, model: RoundModel, others: LeaveOneOut, dimension: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(R, n) estimates of P from each round and the updates of the other rounds, and their variances."""
        n = self.clients
        expected, prior = model.participation, model.variance
        estimate, variance = np.empty_like(prior), np.empty_like(prior)
        height = BLOCK_ENTRIES // n
        if model.scales.drift:
            # The common part of a block takes rounds² × clients; the part of each round, block × clients².
            height = min(int(self.rounds / np.sqrt(n)), BLOCK_ENTRIES // n**2)
        height = max(1, height)
        for top in range(0, self.rounds, height):
            block = slice(top, top + height)
            with_round, among = others.products(block)
            left = (with_round - among.times(others.columns[block]))[:, :n]
            among = among.first(n)
            explained = (prior[block] * among.diagonal()).sum(axis=1)
            noise = np.maximum(others.variance[block] - explained, model.noise[block])
            weight = dimension / noise
            missing = (
                None if self.cohort_sizes is None else self.cohort_sizes[block] - expected[block].sum(axis=1)
            )
            shift, variance[block] = detect(among, weight, left * weight[:, None], prior[block], missing)
            estimate[block] = expected[block] + shift
        return estimate, np.maximum(variance, 1e-6)

    def _evidence(
        self, estimate: NDArray[np.float64], variance: NDArray[np.float64], one: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """(R, n) log-odds of a participation; `variance` is that of a zero, and `one` marks believed ones.

        Ones count as wider only where the model is known to move. With fixed updates they are not, and the
        beliefs about them would make confident columns doubtful.
        """
        if self._problem.places is None:
            return (estimate - 0.5) / variance
        far = np.where(one, np.abs(estimate - 1) / np.sqrt(variance), np.nan)
        return log_odds_of_one(estimate, variance, variance_of_ones(far))

    def _error_scale(
        self, estimate: NDArray[np.float64], variance: NDArray[np.float64], dimension: float
    ) -> NDArray[np.float64]:
        """(R, n) true over stated variance of the estimates.

        It comes from the known zeros. If counts leave hardly any zeros, it comes from all entries: the counts
        say how many of them are ones. No estimate is better than one from as many independent coordinates as
        an update has, so zeros that the size of a small cohort enforces do not count as precision.
        """
        least = dimension / self.entries
        errors = np.abs(estimate) / np.sqrt(variance)
        if not self.zeros_known:
            one = 1 / np.sqrt(np.median(variance, axis=0))
            by_client = deviation_of_mixture(errors, one, self.prior.mean(axis=0))
            return np.broadcast_to(np.maximum(by_client**2, least), errors.shape)
        errors[~self.known_zero] = np.nan
        return np.maximum(variance_from_zeros(errors), least)

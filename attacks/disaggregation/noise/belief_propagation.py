"""Message passing between sums and counts: the iteration that recovers columns under noise.

Two kinds of knowledge take turns. From the sums: with an expected participation of everyone, each
client's update is estimated from all rounds but one, and detected in that one. From the counts: evidence
for single entries becomes the posterior mean of windows with the right number of ones, which is the next
expected participation. Entries in windows with count zero are a free sample of the noise of the evidence:
they tell how much to believe it, without assumptions on how the updates or their noise are distributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.window_posterior import WindowPosterior
from attacks.disaggregation.noise.detection import detect
from attacks.disaggregation.noise.round_model import LeaveOneOut, RoundModel, Scales
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.gram_corrections import level_rounds, outliers
from attacks.disaggregation.space.whitening import whitened_gram

BLOCK_ENTRIES = 1 << 25
"""Numbers in memory at a time for a block of rounds (256 MB)."""
TYPICAL = 0.15
"""The eigenvalue that outliers are measured by: its place among the largest, relative to the clients."""
UNKNOWN_MEAN = 10.0
"""Amplitude of the common mean that was subtracted, far above everything else: nothing is known of it."""
NULL_ENTRIES = 8
"""Entries known to be zero from which a client's or a round's own noise is estimated; else all of them."""
HALVINGS = 20
"""Steps of a bisection over a factor of a hundred: enough for any median."""
LEAST_NOISE = 1e-3
"""Noise that is assumed at least, relative to the energy of a round."""
LEAST_DOUBT = 0.005
"""Variance of an open entry at least: others' mistakes must stay possible, or mistakes confirm each other."""
QUIETEST, LOUDEST = 0.05, 20.0
"""Energy of a client's update relative to the mean over the clients."""
TRUST, TRUST_WITHOUT_ZEROS = 0.85, 0.5
"""Share of the evidence that confidence is computed from: the rounds' estimates are not quite independent.
Without known zeros nothing shows that an update is a mixture of two clients'. Chosen on separate seeds."""
FIRST_FIT = 2
"""Iterations before the scales of updates and noise are fitted: beliefs are the counts' alone till then."""
COOLING = 6
"""Iterations in which the assumed noise may fall by a factor e: evidence is believed slowly at first."""
STILL = 5e-3
"""Largest change of an expected participation at which an attempt ends."""
SETTLED = 1e-3
"""Columns expected to be wrong, of all, at which it ends too: more steps would only round it up."""
GAIN = 0.3
"""Columns by which the number of those found has to grow for an effort to have been worth it."""
PATIENCE = 10
"""Iterations without a gain after which an attempt ends."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What an attempt has of the sums: `gram` (R, R), the `shared` courses (R, q) in it, and `energy` (R,).

    The energy of a round is without what is shared. It sums to the number of rounds.
    """

    gram: NDArray[np.float64]
    shared: NDArray[np.float64]
    energy: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class State:
    """Where message passing stands: beliefs about P, and the model of the sums that goes with them.

    `expected` (R, n) participation; `loudness` (n,) and `noise` (R,) as in `RoundModel`; `dimension`: number
    of independent entries of an update that the sums behave like; `columns` (n, R) the most probable ones,
    `confidence` (n,) their probability.
    """

    sums: Sums
    expected: NDArray[np.float64]
    scales: Scales
    loudness: NDArray[np.float64]
    noise: NDArray[np.float64]
    dimension: float
    columns: NDArray[np.uint8]
    confidence: NDArray[np.float64]
    iteration: int = 0


class Passing:
    """What stays the same between attempts. Matrices are rounds × clients, as P is."""

    def __init__(
        self, problem: DisaggregationProblem, open_: NDArray[np.bool_], *, iterations: int, damping: float
    ) -> None:
        windows = problem.windows
        self.open_, self.iterations, self.damping = open_, iterations, damping
        self.rounds, self.clients = windows.rounds, windows.clients
        rates = windows.rates()
        known = ~np.isnan(rates)
        rates = np.where(known, rates, rates[known].mean() if known.any() else 0.5)
        self.prior = rates.T
        self.null = (windows.known() == 0).T
        self.zeros_known = bool(self.null.sum() >= NULL_ENTRIES * self.clients)
        self.trust = TRUST if self.zeros_known else TRUST_WITHOUT_ZEROS
        self.entries = problem.dim
        self.posterior = WindowPosterior(windows, np.clip(rates, 1e-3, 1 - 1e-3))
        everyone = problem.num_clients in (None, self.clients)
        self.cohort_sizes = (
            np.asarray(problem.cohort_sizes, dtype=np.float64)
            if problem.cohort_sizes is not None and everyone
            else None
        )
        shapes: Sequence[tuple[int, ...]] = problem.layer_shapes or ((problem.dim,),)
        gram = whitened_gram(problem.aggregates, self.cohort_sizes, shapes)
        sizes = self.prior.sum(axis=1) if self.cohort_sizes is None else self.cohort_sizes
        self.gram, self.level = level_rounds(gram, sizes)

    def start(self, times: float) -> State:
        """Nothing but the counts is known; eigenvalues `times` as large as a typical one are shared."""
        sums = self._sums(times)
        energy = 0.3 * self.rounds / max(float(self.prior.sum()), 1.0)
        return State(
            sums=sums,
            expected=self.prior,
            scales=Scales(client=energy, mean=energy),
            loudness=np.ones(self.clients),
            noise=0.7 * sums.energy,
            dimension=min(1000.0, self.entries),
            columns=np.zeros((self.clients, self.rounds), dtype=np.uint8),
            confidence=np.zeros(self.clients),
        )

    def _sums(self, times: float) -> Sums:
        excess, courses = outliers(self.gram, typical=max(1, round(TYPICAL * self.clients)), times=times)
        scale = self.rounds / (np.trace(self.gram) - excess.sum())
        gram, shared = scale * self.gram, courses * np.sqrt(scale * excess)
        energy = np.diag(gram) - (shared**2).sum(axis=1)
        if self.cohort_sizes is not None:
            mean = UNKNOWN_MEAN * self.level * self.cohort_sizes
            shared = np.concatenate((shared, mean[:, None]), axis=1)
        # An empty round has a little energy, so that its noise is not zero.
        return Sums(gram, shared, np.maximum(energy, 1e-6 * energy.mean()))

    def left_over(self, expected: NDArray[np.float64], clients: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(R, k) what to expect of some `clients` (n,) if all others are as `expected` (R, n).

        Where cohort sizes are known it is what is missing from them, shared out as the counts have it: the
        column itself if one client is left. The counts alone could lead to where the client came from.
        """
        prior = self.prior[:, clients]
        if self.cohort_sizes is None:
            return prior
        missing = self.cohort_sizes - expected[:, ~clients].sum(axis=1)
        share = missing / np.maximum(prior.sum(axis=1), 1e-9)
        return np.asarray(np.clip(prior * share[:, None], 0, 1))

    def found(self, state: State) -> float:
        """How many of the open clients' columns are expected to be right."""
        return float(state.confidence[self.open_].sum())

    def run(self, state: State) -> State:
        """Iterate until beliefs stand still or no more columns become sure; the surest late state."""
        best, goal, since = state, 0.0, 0
        for iteration in range(1, self.iterations + 1):
            after = self.step(state)
            # A column that has just changed is not sure yet: a start from the truth needs one step more.
            still = np.abs(after.expected - state.expected).max() < STILL and np.array_equal(
                after.columns, state.columns
            )
            state, found = after, self.found(after)
            if still or found > self.open_.sum() - SETTLED:
                return state
            if iteration <= 2 * COOLING or found >= self.found(best):
                best = state
            goal, since = (found + GAIN, 0) if found >= goal else (goal, since + 1)
            if iteration > 2 * COOLING and since >= PATIENCE:
                break
        return best

    def step(self, state: State) -> State:
        """One exchange of messages between sums and counts."""
        doubt = np.where(self.null, 0.0, np.maximum(state.expected * (1 - state.expected), LEAST_DOUBT))
        sizes = state.expected.sum(axis=1) if self.cohort_sizes is None else self.cohort_sizes
        design = np.concatenate((state.expected, sizes[:, None]), axis=1)
        model = RoundModel(
            state.sums.gram, design, doubt, state.scales, state.loudness, state.noise, state.sums.shared
        )
        loudness = state.loudness
        if state.iteration >= FIRST_FIT:
            model = model.fitted()
        others = LeaveOneOut(model)
        if state.iteration >= FIRST_FIT:
            loudness = np.clip(loudness * np.sqrt(others.surplus()), QUIETEST, LOUDEST)
        estimate, variance = self._detected(model, others, state.dimension)
        excess = self._excess(estimate, variance, state.dimension)
        evidence = (estimate - 0.5) / (variance * excess)
        mean = self.posterior.mean(evidence.T).T
        trusted = self.trust * evidence.T
        columns, log_chance = self.posterior.best(trusted)
        # Anybody's column could stand there instead; then its counts would agree by chance.
        own = 1 / (1 + self.clients * np.exp(-np.clip(self.posterior.support(trusted), -60, 60)))
        floor = max(0.7 * np.exp(-state.iteration / COOLING), LEAST_NOISE) * state.sums.energy
        noise = model.noise * np.sqrt(others.residual / others.variance)
        return State(
            sums=state.sums,
            expected=self.damping * state.expected + (1 - self.damping) * mean,
            scales=model.scales,
            loudness=loudness / loudness.mean(),
            noise=np.clip(noise, floor, state.sums.energy),
            dimension=float(np.clip(state.dimension / np.sqrt(np.median(excess)), 1, self.entries)),
            columns=columns,
            # What the last step has just changed is not sure yet.
            confidence=np.where((columns == state.columns).all(axis=1), own * np.exp(log_chance), 0.0),
            iteration=state.iteration + 1,
        )

    def _detected(
        self, model: RoundModel, others: LeaveOneOut, dimension: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(R, n) estimates of P from each round and the updates of the others, and their variances."""
        n = self.clients
        expected, doubt = model.design[:, :n], model.doubt
        estimate, variance = np.empty_like(doubt), np.empty_like(doubt)
        height = BLOCK_ENTRIES // n
        if model.scales.drift:
            # What a block has in common takes rounds² × clients, and each round's own block × clients².
            height = min(int(self.rounds / np.sqrt(n)), BLOCK_ENTRIES // n**2)
        height = max(1, height)
        for top in range(0, self.rounds, height):
            block = slice(top, top + height)
            with_round, among = others.products(block)
            left = (with_round - among.times(others.columns[block]))[:, :n]
            among = among.first(n)
            explained = (doubt[block] * among.diagonal()).sum(axis=1)
            noise = np.maximum(others.variance[block] - explained, model.noise[block])
            weight = dimension / noise
            missing = (
                None if self.cohort_sizes is None else self.cohort_sizes[block] - expected[block].sum(axis=1)
            )
            shift, variance[block] = detect(among, weight, left * weight[:, None], doubt[block], missing)
            estimate[block] = expected[block] + shift
        return estimate, np.maximum(variance, 1e-6)

    def _excess(
        self, estimate: NDArray[np.float64], variance: NDArray[np.float64], dimension: float
    ) -> NDArray[np.float64]:
        """(R, n) by how much the estimates vary more than they should.

        From entries known to be zero, a factor for every client times one for every round. Medians resist the
        few entries that another client's wrong column spoils. Where counts leave hardly any zeros, from all
        entries, of which the counts say how many are ones. Entries *believed* to be zero are no substitute:
        they are those whose errors are small. No estimate is better than that from as many independent
        entries as an update has: zeros that the size of a small cohort enforces do not count as precision.
        """
        least = dimension / self.entries
        off = np.abs(estimate) / np.sqrt(variance)
        if not self.zeros_known:
            by_client = spread(off, 1 / np.sqrt(np.median(variance, axis=0)), self.prior.mean(axis=0))
            return np.broadcast_to(np.maximum(by_client**2, least), off.shape)
        off[~self.null] = np.nan
        # A client that never took part has estimates without any spread.
        by_client = np.maximum(_median_or(off, axis=0, otherwise=float(np.nanmedian(off))), 1e-3)
        off /= by_client
        by_round = _median_or(off, axis=1, otherwise=1.0)
        return np.maximum((1.4826 * by_round[:, None] * by_client) ** 2, least)


def spread(
    off: NDArray[np.float64], one: NDArray[np.float64], rate: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n,) standard deviation of estimates around 0 and, at a `rate` (n,), around ±`one` (n,).

    `off` (R, n) are their absolute values. The one that makes their median the median.
    """
    from scipy.special import ndtr

    middle = np.maximum(np.median(off, axis=0), 1e-3)
    low, high = np.log(0.1 * middle), np.log(10 * middle)
    for _ in range(HALVINGS):
        sd = np.exp((low + high) / 2)
        below = (1 - rate) * (2 * ndtr(middle / sd) - 1)
        below += rate * (ndtr((middle - one) / sd) - ndtr((-middle - one) / sd))
        low, high = (
            np.where(below > 0.5, (low + high) / 2, low),
            np.where(below > 0.5, high, (low + high) / 2),
        )
    return np.asarray(np.exp((low + high) / 2))


def _median_or(values: NDArray[np.float64], *, axis: int, otherwise: float) -> NDArray[np.float64]:
    """Medians of what is not NaN along an axis; `otherwise` where that are too few."""
    enough = (~np.isnan(values)).sum(axis=axis) >= NULL_ENTRIES
    medians = np.full(enough.shape, otherwise)
    if enough.any():
        medians[enough] = np.nanmedian(np.compress(enough, values, axis=1 - axis), axis=axis)
    return medians

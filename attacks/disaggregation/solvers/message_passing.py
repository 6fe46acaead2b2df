"""All columns at once from noisy sums, by message passing between sums and counts.

Two kinds of knowledge take turns. From the sums: with an expected participation of everyone, each
client's update is estimated from all rounds but one, and detected in that one. From the counts: evidence
for single entries becomes the posterior mean of windows with the right number of ones, which is the next
expected participation. Entries in windows with count zero are a free sample of the noise of the evidence:
they tell how much to believe it, without assumptions on how the updates or their noise are distributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from attacks.disaggregation.detection import detect
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.recovery import Columns
from attacks.disaggregation.round_model import LeaveOneOut, RoundModel, Scales
from attacks.disaggregation.subspace import Subspace
from attacks.disaggregation.verdict import EVEN, Candidates, judge, out_of_reach
from attacks.disaggregation.whitening import cap_spectrum, level_rounds, whitened_gram
from attacks.disaggregation.window_posterior import WindowPosterior
from attacks.disaggregation.windows import Windows
from fedsim.progress import Progress, silent
from fedsim.settings import Settings

BLOCK_ENTRIES = 1 << 23
"""Products of updates in memory at a time (64 MB)."""
NULL_ENTRIES = 8
"""Entries known to be zero from which a client's or a round's own noise is estimated; else all of them."""
SURE = 0.99
"""Confidence from which a column needs no second attempt."""
NEARLY_ALL = 0.9
"""Share of sure columns from which repairs do better than another attempt."""
DOUBTFUL = 0.9
"""Confidence below which a repair starts a column anew."""
LEAST_NOISE = 1e-3
"""Noise that is assumed at least, relative to the energy of a round."""
LEAST_DOUBT = 0.005
"""Variance of an open entry at least: others' mistakes must stay possible, or mistakes confirm each other."""
TRUST = 0.7
"""Share of the evidence that confidence is computed from: the rounds' estimates are not quite independent."""
STILL = 5e-3
"""Largest change of an expected participation at which an attempt ends."""
COOLING = 6
"""Iterations in which the assumed noise may fall by a factor e: evidence is believed slowly at first."""


FITTING = 3 * COOLING
"""Iterations in which the scales of updates and noise are fitted. Later fits would feed on their mistakes:
doubt lowers the energy of updates, which raises doubt, until weak signals that were found are lost again."""


class MessagePassing(Settings):
    """Joint recovery under noise, and with a model that moves from round to round.

    The spectrum of the whitened sums is capped at a fraction of the number of clients; `caps` are tried in
    turn until nearly every column is sure, and the attempt with the highest total confidence stays. After
    that, `repairs` times, doubtful columns are started anew while the others are kept. An attempt takes at
    most `iterations` steps with `damping` (0: none).
    """

    name: Literal["message_passing"] = "message_passing"
    caps: tuple[float, ...] = Field(default=(0.15, 0.02, 0.5), min_length=1, strict=False)
    repairs: int = Field(default=3, ge=0)
    iterations: PositiveInt = 60
    damping: float = Field(default=0.5, ge=0, lt=1)

    def solve(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        """A column and an outcome for every client; see `Columns`."""
        found = Candidates.none(problem)
        open_ = ~out_of_reach(problem, subspace)
        confidence = np.zeros(len(open_))
        if open_.any():
            best = self._best(problem, open_, progress)
            found.columns[open_] = best.columns[open_]
            confidence = best.confidence / _namesakes(problem.windows)
            for client in np.flatnonzero(open_ & (confidence < EVEN)):
                found.reason[client] = (
                    f"no column is likely: the best has probability {confidence[client]:.2g}"
                )
        return judge(problem, subspace, found, solver=self.name, belief=confidence)

    def _best(self, problem: DisaggregationProblem, open_: NDArray[np.bool_], progress: Progress) -> _State:
        """The attempt, repaired, with the highest total confidence in the `open_` clients."""
        passing = _Passing(problem, self)
        steps = len(self.caps) + self.repairs
        best: _State | None = None
        for step, cap in enumerate(self.caps):
            progress(step, steps)
            state = passing.run(passing.start(max(1, round(cap * passing.clients))))
            if best is None or state.confidence[open_].sum() > best.confidence[open_].sum():
                best = state
            if (best.confidence[open_] >= SURE).mean() >= NEARLY_ALL:
                break
        assert best is not None
        for step in range(self.repairs):
            doubtful = open_ & (best.confidence < DOUBTFUL)
            if not doubtful.any():
                break
            progress(len(self.caps) + step, steps)
            expected = best.expected.copy()
            expected[:, doubtful] = passing.prior[:, doubtful]
            state = passing.run(replace(best, expected=expected))
            if state.confidence[open_].sum() > best.confidence[open_].sum():
                best = state
        progress(steps, steps)
        return best


@dataclass(frozen=True, eq=False)
class _State:
    """Where message passing stands: beliefs about P, and the model of the sums that goes with them.

    `expected` (R, n) participation; `noise` (R,); `dimension`: number of independent entries of an update
    that the sums behave like; `columns` (n, R) the most probable ones, `confidence` (n,) their probability.
    """

    gram: NDArray[np.float64]
    expected: NDArray[np.float64]
    scales: Scales
    noise: NDArray[np.float64]
    dimension: float
    columns: NDArray[np.uint8]
    confidence: NDArray[np.float64]
    iteration: int = 0


class _Passing:
    """What stays the same between attempts. Matrices are rounds × clients, as P is."""

    def __init__(self, problem: DisaggregationProblem, settings: MessagePassing) -> None:
        windows = problem.windows
        self.settings = settings
        self.rounds, self.clients = windows.rounds, windows.clients
        rates = windows.rates()
        known = ~np.isnan(rates)
        rates = np.where(known, rates, rates[known].mean() if known.any() else 0.5)
        self.prior = rates.T
        self.null = (windows.known() == 0).T
        self.posterior = WindowPosterior(windows, np.clip(rates, 1e-3, 1 - 1e-3))
        everyone = problem.num_clients in (None, self.clients)
        self.cohort_sizes = (
            np.asarray(problem.cohort_sizes, dtype=np.float64)
            if problem.cohort_sizes is not None and everyone
            else None
        )
        shapes: Sequence[tuple[int, ...]] = problem.layer_shapes or ((problem.dim,),)
        gram = whitened_gram(problem.aggregates, self.cohort_sizes, shapes)
        self.gram = level_rounds(
            gram, self.prior.sum(axis=1) if self.cohort_sizes is None else self.cohort_sizes
        )

    def start(self, rank: int) -> _State:
        """Nothing but the counts is known; the Gram matrix is capped at its `rank`-th eigenvalue."""
        gram = cap_spectrum(self.gram, rank)
        gram *= self.rounds / np.trace(gram)
        energy = 0.3 * self.rounds / max(float(self.prior.sum()), 1.0)
        return _State(
            gram=gram,
            expected=self.prior,
            scales=Scales(client=energy, mean=energy),
            noise=0.7 * self._energies(gram),
            dimension=1000.0,
            columns=np.zeros((self.clients, self.rounds), dtype=np.uint8),
            confidence=np.zeros(self.clients),
        )

    def run(self, state: _State) -> _State:
        """Iterate until beliefs stand still, or else to the surest late state: weak signals fade again."""
        best = state
        for _ in range(self.settings.iterations):
            after = self.step(state)
            still = np.abs(after.expected - state.expected).max() < STILL
            state = after
            if still:
                return state
            if state.iteration <= 2 * COOLING or state.confidence.sum() >= best.confidence.sum():
                best = state
        return best

    def step(self, state: _State) -> _State:
        """One exchange of messages between sums and counts."""
        doubt = np.where(self.null, 0.0, np.maximum(state.expected * (1 - state.expected), LEAST_DOUBT))
        sizes = state.expected.sum(axis=1) if self.cohort_sizes is None else self.cohort_sizes
        design = np.concatenate((state.expected, sizes[:, None]), axis=1)
        model = RoundModel(state.gram, design, doubt, state.scales, state.noise)
        if 2 <= state.iteration < FITTING:
            model = model.fitted()
        others = LeaveOneOut(model)
        estimate, variance = self._detected(model, others, state.dimension)
        excess = self._excess(estimate, variance, state.expected)
        evidence = (estimate - 0.5) / (variance * excess)
        mean = self.posterior.mean(evidence.T).T
        columns, log_chance = self.posterior.best(TRUST * evidence.T)
        energies = self._energies(state.gram)
        floor = max(0.7 * np.exp(-state.iteration / COOLING), LEAST_NOISE) * energies
        damping = self.settings.damping
        return _State(
            gram=state.gram,
            expected=damping * state.expected + (1 - damping) * mean,
            scales=model.scales,
            noise=np.clip(model.noise * np.sqrt(others.residual / others.variance), floor, energies),
            dimension=float(np.clip(state.dimension / np.sqrt(np.median(excess)), 1, 1e9)),
            columns=columns,
            # What the last step has just changed is not sure yet.
            confidence=np.where((columns == state.columns).all(axis=1), np.exp(log_chance), 0.0),
            iteration=state.iteration + 1,
        )

    def _detected(
        self, model: RoundModel, others: LeaveOneOut, dimension: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(R, n) estimates of P from each round and the updates of the others, and their variances."""
        n = self.clients
        expected, doubt = model.design[:, :n], model.doubt
        estimate, variance = np.empty_like(doubt), np.empty_like(doubt)
        height = max(1, BLOCK_ENTRIES // (self.rounds * n if model.scales.drift else n * n))
        for top in range(0, self.rounds, height):
            block = slice(top, top + height)
            with_round, among = others.products(block)
            left = with_round - np.einsum("rij,rj->ri", among, model.design[block])
            explained = (doubt[block] * np.einsum("rkk->rk", among)[:, :n]).sum(axis=1)
            noise = np.maximum(others.variance[block] - explained, model.noise[block])
            weight = dimension / noise
            missing = (
                None if self.cohort_sizes is None else self.cohort_sizes[block] - expected[block].sum(axis=1)
            )
            shift, variance[block] = detect(
                among[:, :n, :n] * weight[:, None, None], left[:, :n] * weight[:, None], doubt[block], missing
            )
            estimate[block] = expected[block] + shift
        return estimate, np.maximum(variance, 1e-6)

    def _excess(
        self, estimate: NDArray[np.float64], variance: NDArray[np.float64], expected: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """(R, n) by how much the estimates vary more than they should, from entries known to be zero.

        A factor for every client times one for every round. Medians resist the few entries that another
        client's wrong column spoils. Where counts leave no zeros, entries expected to be zero stand in.
        """
        zero = self.null if self.null.sum() >= NULL_ENTRIES * self.clients else expected < 0.5
        off = np.where(zero, np.abs(estimate) / np.sqrt(variance), np.nan)
        # A client that never took part has estimates without any spread.
        by_client = np.maximum(_median_or(off, axis=0, otherwise=float(np.nanmedian(off))), 1e-3)
        off /= by_client
        by_round = _median_or(off, axis=1, otherwise=1.0)
        return np.maximum((1.4826 * by_round[:, None] * by_client) ** 2, 0.05)

    @staticmethod
    def _energies(gram: NDArray[np.float64]) -> NDArray[np.float64]:
        """(R,) of each round; an empty round has a little, so that its noise is not zero."""
        energies = np.diag(gram)
        return np.asarray(np.maximum(energies, 1e-6 * energies.mean()))


def _namesakes(windows: Windows) -> NDArray[np.int64]:
    """(n,) clients with the same counts in the same windows, itself included: nothing tells them apart."""
    layout = np.broadcast_to(windows.index, (windows.clients, *windows.index.shape[1:]))
    known = np.nan_to_num(windows.count, nan=-1)
    rows = np.concatenate((layout.reshape(windows.clients, -1), known), axis=1)
    _, group, size = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(size[group], dtype=np.int64)


def _median_or(values: NDArray[np.float64], *, axis: int, otherwise: float) -> NDArray[np.float64]:
    """Medians of what is not NaN along an axis; `otherwise` where that are too few."""
    enough = (~np.isnan(values)).sum(axis=axis) >= NULL_ENTRIES
    medians = np.full(enough.shape, otherwise)
    if enough.any():
        medians[enough] = np.nanmedian(np.compress(enough, values, axis=1 - axis), axis=axis)
    return medians

"""The genie: it is told all other participations, and decides one from the sums and the client's counts.

A participation is found if no alternative is likelier than the truth, with everything else as it truly was:

- In a window with an exact count, the alternatives are the other rounds of the window.
- In a window with a noisy count, "not at all" is another alternative. The error of the count and the mean
  rate decide how likely it is.
- Without a count, "not at all" is the only alternative.

Where "not at all" is possible, a round without the client can likewise be taken for one with it. The model of
the sums is the attack's (`attacks.disaggregation.noise.round_model`), with its scales fitted to the true
participation. The genie does not use the size of single cohorts: with all other participations, the size of a
round would give the last one away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.counts.count_errors import log_likelihood
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.belief_propagation import (
    BeliefPropagation,
)
from attacks.disaggregation.noise.known_participation import fitted
from attacks.disaggregation.noise.round_model import RoundModel
from scenarios.run.ceiling.column_changes import ColumnChanges

OUTLIERS = (2.0, 1.0)
"""Multiples of a typical eigenvalue above which a profile counts as shared: the choices of the attack."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What the genie decides: `found` (rounds, K) right participations, and `invented` (K,) wrong ones."""

    found: NDArray[np.bool_]
    invented: NDArray[np.int64]


def genie(
    problem: DisaggregationProblem, P: NDArray[np.uint8], rate: float, *, exact: bool
) -> Decisions | None:
    """The decisions under the model that finds most of the true participation P (rounds, K).

    `rate` is the mean participation rate, within (0, 1). The models are those that the attack tries: with few
    and with many shared profiles, and with updates that are fixed or that move with the server's model; if
    the sums are `exact`, updates are fixed. None if no model can be fitted, because rounds are too few.
    """
    drift = (False,) if exact else (False, True)
    with np.errstate(invalid="ignore"):
        models = [model for model in _models(problem, P, drift) if np.isfinite(model.misfit())]
    every = (_decide(model, problem.windows, P, rate) for model in models)
    return max(every, key=lambda d: int(d.found.sum()) - int(d.invented.sum()), default=None)


def shuffled(windows: Windows, P: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """(rounds, K) a random participation with the same ones in every window, and outside of all windows."""
    K, W = windows.count.shape
    window = windows.spread(np.tile(np.arange(W, dtype=np.float64), (K, 1)), fill=-1.0).T
    in_order, at_random = (
        np.lexsort((key, window), axis=0) for key in (-P.astype(np.int8), rng.random(P.shape))
    )
    mixed = np.empty_like(P)
    np.put_along_axis(mixed, at_random, np.take_along_axis(P, in_order, axis=0), axis=0)
    return mixed


def flops(rounds: int, dim: int, participations: int) -> float:
    """About the number of floating-point operations that the genie takes: fits, decisions, Gram matrices."""
    return 400.0 * rounds**3 + 32.0 * rounds**2 * participations + 4.0 * rounds**2 * dim


def _models(
    problem: DisaggregationProblem, P: NDArray[np.uint8], drift: Sequence[bool]
) -> Iterator[RoundModel]:
    everyone = np.ones(P.shape[1], dtype=np.bool_)
    passing = BeliefPropagation(problem, everyone, iterations=1, damping=0.0)
    for times, moving in itertools.product(OUTLIERS, drift):
        state = replace(passing.start(times, moving=moving), expected=P.astype(np.float64))
        # Nothing is uncertain for the genie.
        yield fitted(replace(passing.model(state), variance=np.zeros(P.shape)), state.observations.energy)


def _decide(model: RoundModel, windows: Windows, P: NDArray[np.uint8], rate: float) -> Decisions:
    """Compare every participation with its alternatives."""
    changes, weight = ColumnChanges(model), 0.5 * model.independent_coordinates()
    K, W = windows.count.shape
    window = windows.spread(np.where(np.isnan(windows.count), np.nan, np.arange(W, dtype=np.float64)))
    loose = np.isnan(windows.spread(windows.count)) | (windows.spread(windows.sd, fill=0.0) > 0)
    prior = _prior_odds(windows, P, rate)
    open_ = np.isnan(windows.known())
    found, invented = P == 1, np.zeros(K, dtype=np.int64)
    for k in range(K):
        rounds = np.flatnonzero(open_[k])
        p = P[rounds, k] == 1
        moved = np.zeros(len(rounds), dtype=np.bool_)
        left, joined = np.nonzero(p[:, None] & ~p & (window[k, rounds, None] == window[k, rounds]))
        moved[left[changes.moves(k, rounds, left, joined) < 0]] = True
        flipped = np.zeros(len(rounds), dtype=np.bool_)
        if loose[k, rounds].any():
            gain = prior[k, rounds] - weight * changes.flips(k, rounds)
            flipped = loose[k, rounds] & (gain > 0)
        found[rounds[p & (moved | flipped)], k] = False
        invented[k] = (flipped & ~p).sum() + (moved & ~flipped).sum()
    return Decisions(found, invented)


def _prior_odds(windows: Windows, P: NDArray[np.uint8], rate: float) -> NDArray[np.float64]:
    """(K, rounds) log-odds of the opposite of each entry, by the counts and given all other entries."""
    step = 1.0 - 2.0 * P.T
    count, sd = windows.spread(windows.count), windows.spread(windows.sd, fill=0.0)
    laplace = windows.spread(windows.laplace.astype(np.float64), fill=0.0) > 0
    counted, sd = ~np.isnan(count) & (sd > 0), np.where(sd > 0, sd, 1.0)
    off = windows.spread(windows.sums(P.T).astype(np.float64)) - count
    by_count = log_likelihood(off + step, sd, laplace) - log_likelihood(off, sd, laplace)
    return np.asarray(step * (np.log(rate) - np.log1p(-rate)) + np.where(counted, by_count, 0.0))

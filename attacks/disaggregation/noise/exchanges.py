"""Two clients that have taken each other's place for a while: how likely is it, and how is it undone?

Belief propagation follows a client from round to round. Where two clients pause and the model moves on, it
can go on with the wrong one, and then finds everything consistent: each of the two columns is a true one
before the pause, and the other's after it. Its confidence does not see this, because every entry is judged
with all others taken as right. So stretches of columns are judged as a whole. In a stretch, two clients
exchange all rounds that only one of them took part in. Exact counts allow few stretches, and noisy ones give
them odds (`stretches`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.count_errors import padded_weights
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.round_model import RoundModel
from attacks.disaggregation.noise.stretch_misfits import best_stretches
from attacks.disaggregation.noise.stretches import CONTRADICTION

PASSES = 12
"""Most passes that undo exchanges: each client is in one exchange of a pass at most."""
LEAST_GAIN = 1.0
"""Log-likelihood that an exchange must gain to be undone."""
LEAST_ENERGY, MOST_ENERGY = 0.5, 2.0
"""Bounds of a client's energy relative to the mean: fits to a few rounds would favour an exchange that suits
them."""
STEPS_PER_PASS = 4
"""Steps of the fit of scales and noise after each pass."""
BLOCK_ENTRIES = 1 << 25
"""Numbers in memory for the clients of one block of pairs (256 MB)."""


class Best(NamedTuple):
    """The best exchange of each of q pairs of clients: its `stretch` (q, 2), as positions among the rounds in
    which the two differ, and what it would `gain` (q,) in log-posterior. `odds` (q,): log-odds of all their
    exchanges. Where the counts leave none, gain and odds are −∞.
    """

    stretch: NDArray[np.int64]
    gain: NDArray[np.float64]
    odds: NDArray[np.float64]


class Exchanges:
    """All exchanges of a stretch between two clients, for a `model` whose design holds P (R, n) itself.

    `windows` are the clients' counts; `coordinates` is how many independent ones the likelihood counts.
    """

    def __init__(self, model: RoundModel, windows: Windows, coordinates: float) -> None:
        self._P = np.ascontiguousarray(model.participation.T, dtype=np.uint8)
        kernel = model.scales.kernel(len(model.gram))
        self._kernel = np.ones_like(model.gram) if kernel is None else kernel
        inverse = model.inverse()
        self._sums = np.stack((inverse, inverse @ model.gram @ inverse))
        self._energies, self._coordinates = model.energies, float(coordinates)
        window = np.ascontiguousarray(np.broadcast_to(windows.window_of_round, self._P.shape), dtype=np.int64)
        inside = windows.sums(self._P)
        outside = self._P.sum(axis=1, dtype=np.int64) - inside.sum(axis=1)
        tally = np.concatenate((inside, outside[:, None]), axis=1).astype(np.int64)
        self._counts = window, tally, padded_weights(windows, contradiction=CONTRADICTION)

    def among(self, pairs: NDArray[np.int64]) -> Best:
        """The best exchange of each of the `pairs` (q, 2) of clients."""
        found = Best(np.empty(pairs.shape, np.int64), np.empty(len(pairs)), np.empty(len(pairs)))
        # What one client's update reaches takes rounds² of memory: blocks of clients take turns.
        block = pairs // max(1, BLOCK_ENTRIES // (4 * self._kernel.size))
        for blocks in np.unique(block, axis=0):
            chosen = np.flatnonzero((block == blocks).all(axis=1))
            clients, local = np.unique(pairs[chosen], return_inverse=True)
            for all_, theirs in zip(found, self._best(clients, local.reshape(-1, 2)), strict=True):
                all_[chosen] = theirs
        return found

    def _best(self, clients: NDArray[np.int64], pairs: NDArray[np.int64]) -> Any:
        """`best_stretches` of pairs of these clients."""
        reach = np.empty((len(clients), *self._sums.shape))
        for k, client in enumerate(clients):
            rounds = np.flatnonzero(self._P[client])
            reach[k] = self._kernel[:, rounds] @ self._sums[:, rounds]
        window, tally, weight = self._counts
        return best_stretches(
            self._P[clients],
            self._sums,
            reach,
            self._kernel,
            self._energies[clients],
            window[clients],
            tally[clients],
            weight[clients],
            self._coordinates,
            pairs,
        )


def undone(
    model: RoundModel, windows: Windows, cohort_sizes: NDArray[np.float64] | None
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Columns (n, R) after all exchanges that gain were made, and the log-odds (n,) of those not made.

    `model.design` holds the columns at the start, as they are: zeros and ones.
    """
    P = model.participation.copy()
    model = replace(model, relative_energy=np.clip(model.relative_energy, LEAST_ENERGY, MOST_ENERGY))
    n = P.shape[1]
    pairs = np.stack(np.triu_indices(n, 1), axis=1).astype(np.int64)
    best = Best(np.empty(pairs.shape, np.int64), np.empty(len(pairs)), np.empty(len(pairs)))
    changed = np.arange(len(pairs))
    for left in reversed(range(PASSES)):
        model = model.given(P, cohort_sizes).refined(steps=STEPS_PER_PASS)
        exchanges = Exchanges(model, windows, model.independent_coordinates())
        for all_, theirs in zip(best, exchanges.among(pairs[changed]), strict=True):
            all_[changed] = theirs
        better = np.flatnonzero(best.gain > LEAST_GAIN)
        if not len(better) or not left:
            break
        busy = np.zeros(n, dtype=np.bool_)
        for q in better[np.argsort(-best.gain[better], kind="stable")]:
            pair = pairs[q]
            if not busy[pair].any():
                busy[pair] = True
                exchange(P, pair, best.stretch[q])
        # Nothing else has changed, but for a little of the scales.
        changed = np.flatnonzero(busy[pairs].any(axis=1))
    odds = np.full((n, n), -np.inf)
    odds[tuple(pairs.T)] = odds[tuple(pairs.T[::-1])] = best.odds
    return P.T.astype(np.uint8), np.logaddexp.reduce(odds, axis=1)


def exchange(P: NDArray[np.float64], pair: NDArray[np.int64], stretch: NDArray[np.int64]) -> None:
    """Let a `pair` of clients exchange a `stretch` of their columns of P (R, n), in place."""
    differ = np.flatnonzero(P[:, pair[0]] != P[:, pair[1]])
    rounds = differ[slice(*stretch)]
    P[np.ix_(rounds, pair)] = P[np.ix_(rounds, pair[::-1])]

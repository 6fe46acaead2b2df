"""Two clients that have taken each other's place for a while: how likely is it, and how is it undone?

Belief propagation follows a client from round to round. Where two clients pause and the model moves on, it
can go on with the wrong one, and then finds everything consistent: each of the two columns is a true one
before the pause, and the other's after it. Its confidence does not see this, because every entry is judged
with all others taken as right. So stretches of columns are judged as a whole. In a stretch, two clients
exchange all rounds that only one of them took part in. Exact counts allow few stretches, and noisy ones give
them odds (`stretches`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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


@dataclass(frozen=True, eq=False)
class Exchange:
    """Clients `first` and `second` exchange their entries in `rounds`; `gain` in log-posterior if they do."""

    first: int
    second: int
    rounds: NDArray[np.intp]
    gain: float


class Exchanges:
    """All exchanges of a stretch between two clients, for a `model` whose design holds P (R, n) itself.

    `windows` are the clients' counts; `coordinates` is how many independent ones the likelihood counts.
    """

    def __init__(self, model: RoundModel, windows: Windows, coordinates: float) -> None:
        self._P = np.ascontiguousarray(model.design[:, :-1].T, dtype=np.uint8)
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

    def between(self, first: int, second: int) -> tuple[Exchange | None, float]:
        """The best exchange between two clients, if the counts leave one, and the log-odds of all of them."""
        return self.among([(first, second)])[0]

    def among(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[Exchange | None, float]]:
        """The same for many pairs of clients."""
        order = np.array(pairs, dtype=np.int64)
        stretch, gain, odds = np.empty((len(pairs), 2), np.int64), np.empty(len(pairs)), np.empty(len(pairs))
        # What one client's update reaches takes rounds² of memory: blocks of clients take turns.
        block = order // max(1, BLOCK_ENTRIES // (4 * self._kernel.size))
        for blocks in np.unique(block, axis=0):
            chosen = np.flatnonzero((block == blocks).all(axis=1))
            clients, local = np.unique(order[chosen], return_inverse=True)
            found = self._best(clients, local.reshape(-1, 2))
            stretch[chosen], gain[chosen], odds[chosen] = found
        exchanges: list[tuple[Exchange | None, float]] = []
        for (first, second), ends, gained, log_odds in zip(pairs, stretch, gain, odds, strict=True):
            exchange = None
            if gained > -np.inf:
                rounds = np.flatnonzero(self._P[first] != self._P[second])[slice(*ends)]
                exchange = Exchange(first, second, rounds, float(gained))
            exchanges.append((exchange, float(log_odds)))
        return exchanges

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
    P = model.design[:, :-1].copy()
    model = replace(model, relative_energy=np.clip(model.relative_energy, LEAST_ENERGY, MOST_ENERGY))
    n = P.shape[1]
    pairs = list(itertools.combinations(range(n), 2))
    best: dict[tuple[int, int], Exchange | None] = {}
    odds = np.full((n, n), -np.inf)
    for left in reversed(range(PASSES)):
        model = model.given(P, cohort_sizes).refined(steps=STEPS_PER_PASS)
        exchanges = Exchanges(model, windows, model.independent_coordinates())
        for (first, second), (exchange, log_odds) in zip(pairs, exchanges.among(pairs), strict=True):
            best[first, second] = exchange
            odds[first, second] = odds[second, first] = log_odds
        better = sorted((e for e in best.values() if e and e.gain > LEAST_GAIN), key=lambda e: -e.gain)
        if not better or not left:
            break
        busy: set[int] = set()
        for made in better:
            pair = np.array([made.first, made.second])
            if busy.isdisjoint(pair.tolist()):
                busy.update(pair.tolist())
                P[np.ix_(made.rounds, pair)] = P[np.ix_(made.rounds, pair[::-1])]
        # Nothing else has changed, but for a little of the scales.
        pairs = [pair for pair in best if not busy.isdisjoint(pair)]
    return P.T.astype(np.uint8), np.logaddexp.reduce(odds, axis=1)

"""Two clients that have taken each other's place for a while: how likely is it, and how is it undone?

Belief propagation follows a client from round to round. Where two clients pause and the model moves on, it
can go on with the wrong one, and then finds everything consistent: each of the two columns is a true one
before the pause, and the other's after it. Its confidence does not see this, because every entry is judged
with all others taken as right. So stretches of columns are judged as a whole. In a stretch, two clients
exchange all rounds that only one of them took part in. Exact counts allow few stretches, and noisy ones give
them odds (`stretches`).

Under the Gaussian process of `round_model`, let δ be the change of the first client's column on the rounds S,
and −δ that of the second one's. Then Ω changes by Σ (e_s v_sᵀ + v_s e_sᵀ) over s in S, with unit vectors e_s
and

    v_s = δ_s κ(s, ·) ∘ (E₁ p₁ − E₂ p₂ + ½ (E₁ + E₂) δ),

where E₁ and E₂ are the energies. So it is U M Uᵀ with U = (e, v), M exchanging the two halves, and the misfit
changes by log det(1 + M UᵀΩ⁻¹U) − tr((1 + M UᵀΩ⁻¹U)⁻¹ M UᵀΩ⁻¹KΩ⁻¹U).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.count_errors import padded_weights
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.round_model import RoundModel
from attacks.disaggregation.noise.stretches import CONTRADICTION, stretches

PASSES = 12
"""Most passes that undo exchanges: each client is in one exchange of a pass at most."""
LEAST_GAIN = 1.0
"""Log-likelihood that an exchange must gain to be undone."""
LEAST_ENERGY, MOST_ENERGY = 0.5, 2.0
"""Bounds of a client's energy relative to the mean: fits to a few rounds would favour an exchange that suits
them."""
STEPS_PER_PASS = 4
"""Steps of the fit of scales and noise after each pass."""
PAIRS_TOGETHER = 64
"""Pairs of clients judged together."""
STRETCHES_TOGETHER = 256
"""Stretches of a length judged together, so that they fit into the cache."""


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
        self._P, self._energies = model.design[:, :-1], model.energies
        kernel = model.scales.kernel(len(model.gram))
        self._kernel = np.ones_like(model.gram) if kernel is None else kernel
        self._inverse = model.inverse()
        self._energy = self._inverse @ model.gram @ self._inverse
        self._coordinates = coordinates
        columns = self._P.T.astype(np.uint8)
        self._window = np.broadcast_to(windows.window_of_round, columns.shape)
        self._weight = padded_weights(windows, contradiction=CONTRADICTION)
        inside = windows.sums(columns)
        outside = columns.sum(axis=1, dtype=np.int64) - inside.sum(axis=1)
        self._tally = np.concatenate((inside, outside[:, None]), axis=1)

    def between(self, first: int, second: int) -> tuple[Exchange | None, float]:
        """The best exchange between two clients, if the counts leave one, and the log-odds of all of them."""
        return self.among([(first, second)])[0]

    def among(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[Exchange | None, float]]:
        """The same for many pairs of clients."""
        found: list[tuple[Exchange | None, float]] = []
        for top in range(0, len(pairs), PAIRS_TOGETHER):
            candidates = [self._candidates(*pair) for pair in pairs[top : top + PAIRS_TOGETHER]]
            misfits = _misfits([c for c in candidates if len(c.stretch)])
            for c in candidates:
                if not len(c.stretch):
                    found.append((None, -np.inf))
                    continue
                gain = c.odds - 0.5 * self._coordinates * next(misfits)
                best = int(gain.argmax())
                rounds = c.at[slice(*c.stretch[best])]
                exchange = Exchange(c.first, c.second, rounds, float(gain[best]))
                found.append((exchange, float(np.logaddexp.reduce(gain))))
        return found

    def _candidates(self, first: int, second: int) -> _Candidates:
        """The stretches that the counts leave to two clients, and what their misfits are made of."""
        p1, p2 = self._P[:, first], self._P[:, second]
        difference = (p2 - p1).astype(np.int64)
        at = np.flatnonzero(difference)
        change, pair = difference[at], [first, second]
        window = np.ascontiguousarray(self._window[pair][:, at])
        stretch, odds = stretches(change, window, self._tally[pair], self._weight[pair])
        products = np.empty((7, len(at), len(at)))
        if len(stretch):
            E1, E2 = self._energies[first], self._energies[second]
            near = np.flatnonzero((p1 > 0) | (p2 > 0))
            rows = at[:, None]
            v = change[:, None] * self._kernel[rows, near] * (E1 * p1 - E2 * p2)[near]
            for i, matrix in enumerate((self._inverse, self._energy)):
                products[3 * i] = matrix[rows, at]
                products[3 * i + 1] = matrix[rows, near] @ v.T
                products[3 * i + 2] = v @ matrix[near[:, None], near] @ v.T
            products[6] = 0.5 * (E1 + E2) * np.outer(change, change) * self._kernel[rows, at]
        return _Candidates(first, second, at, stretch, odds, products)


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Stretches (q, 2) of two clients that differ in the m rounds `at`, and their `odds` (q,) by the counts.

    A stretch goes from one round `at` to before another. `products` (7, m, m): of e with e, e with v and v
    with v for Ω⁻¹, the same for Ω⁻¹KΩ⁻¹, and the part of v that only rounds of the stretch contribute.
    """

    first: int
    second: int
    at: NDArray[np.intp]
    stretch: NDArray[np.int64]
    odds: NDArray[np.float64]
    products: NDArray[np.float64]


def _misfits(candidates: Sequence[_Candidates]) -> Iterator[NDArray[np.float64]]:
    """Of each pair (q,) the change of the misfit by each of its stretches; stretches of a length together."""
    if not candidates:
        return
    widest = max(len(c.at) for c in candidates)
    products = np.empty((7, len(candidates), widest, widest))
    for i, c in enumerate(candidates):
        products[:, i, : len(c.at), : len(c.at)] = c.products
    sizes = [len(c.stretch) for c in candidates]
    owner = np.repeat(np.arange(len(candidates)), sizes)
    stretch = np.concatenate([c.stretch for c in candidates])
    length = stretch[:, 1] - stretch[:, 0]
    misfit = np.empty(len(stretch))
    for n in np.unique(length):
        chosen = np.flatnonzero(length == n)
        for part in np.split(chosen, range(STRETCHES_TOGETHER, len(chosen), STRETCHES_TOGETHER)):
            place = stretch[part, :1] + np.arange(n)
            blocks = products[:, owner[part, None, None], place[:, :, None], place[:, None, :]]
            ee, ev, vv, ee_energy, ev_energy, vv_energy, Q = blocks
            with_inverse, with_energy = _gram(ee, ev, vv, Q), _gram(ee_energy, ev_energy, vv_energy, Q)
            # M exchanges the halves: M X is X with its upper and lower half exchanged.
            changed = np.eye(2 * n) + np.roll(with_inverse, n, axis=1)
            sign, log_determinant = np.linalg.slogdet(changed)
            explained = np.linalg.solve(changed, np.roll(with_energy, n, axis=1))
            change_of_misfit = log_determinant - np.trace(explained, axis1=1, axis2=2)
            misfit[part] = np.where(sign > 0, change_of_misfit, np.inf)
    # All rounds: two names are exchanged. The sums say nothing about names.
    everything = np.repeat([len(c.at) for c in candidates], sizes)
    misfit[length == everything] = 0.0
    yield from np.split(misfit, np.cumsum(sizes)[:-1])


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


def _gram(
    ee: NDArray[np.float64], ev: NDArray[np.float64], vv: NDArray[np.float64], Q: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(q, 2n, 2n) inner products of (e, v + Q e), from those of e and v (q, n, n each); Q is symmetric."""
    e_v = ev + ee @ Q
    v_v = vv + Q @ ev + np.swapaxes(ev, 1, 2) @ Q + Q @ ee @ Q
    return np.concatenate(
        (np.concatenate((ee, e_v), axis=2), np.concatenate((np.swapaxes(e_v, 1, 2), v_v), axis=2)), axis=1
    )

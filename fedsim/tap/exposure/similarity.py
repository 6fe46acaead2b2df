"""How alike a client's updates are from round to round, measured while they pass by.

What stays the same in a client's updates is signal for an attacker; what changes is noise. Directions with
little noise tell clients apart best, and attackers whiten. So both are measured relative to the covariance of
the noise. Memory holds two vectors per client, and some differences between updates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedsim.tap.exposure.evidence import EXACT, Signal

ENTRIES = 1024
"""Entries of an update that are looked at, evenly spread."""
_DIFFERENCES = 256
"""Differences between consecutive updates of a client that are kept, as samples of the noise."""
_FEWEST_CLIENTS, _FEWEST_DIFFERENCES = 3, 6
"""Clients with two updates, and differences, below which nothing is known about the noise."""
_SAMPLES_FOR_SHAPE = 24
"""Samples of the noise below which it is taken for equal in all directions."""
_ROUNDING = 1e-10
"""Share of the energy that rounding in single precision may explain."""


class Similarity:
    """Grows with every update; `signal` says what is known so far."""

    def __init__(self) -> None:
        self._chosen: NDArray[np.intp] | None = None
        self._halves: dict[int, NDArray[np.float64]] = {}
        """Sums of a client's updates, by turns in one of two rows."""
        self._latest: dict[int, NDArray[np.float64]] = {}
        self._numbers: dict[int, int] = {}
        self._differences: deque[NDArray[np.float64]] = deque(maxlen=_DIFFERENCES)
        self._dim = 0

    def sampled(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """(at most `ENTRIES`,) evenly spread entries of a row."""
        if self._chosen is None:
            self._dim = len(row)
            self._chosen = np.unique(np.linspace(0, len(row) - 1, ENTRIES).astype(np.intp))
        return row[self._chosen]

    def add(self, updates: Mapping[int, NDArray[np.float64]]) -> None:
        """Add the `sampled` updates of a round, as they are in the sum, by client."""
        for client, update in updates.items():
            number = self._numbers.get(client, 0)
            if number:
                self._differences.append(update - self._latest[client])
            else:
                self._halves[client] = np.zeros((2, len(update)))
            self._halves[client][number % 2] += update
            self._latest[client] = update
            self._numbers[client] = number + 1

    def signal(self) -> Signal:
        """The signal in the updates so far."""
        repeated = [client for client, number in self._numbers.items() if number > 1]
        if not self._numbers:
            return Signal()
        if len(repeated) < _FEWEST_CLIENTS or len(self._differences) < _FEWEST_DIFFERENCES:
            return Signal(0.0, 1.0)
        numbers = np.array([self._numbers[client] for client in repeated])
        halves = np.array([self._halves[client] for client in repeated])
        first, second = (numbers + 1) // 2, numbers // 2
        odd, even = halves[:, 0] / first[:, None], halves[:, 1] / second[:, None]
        odd, even = odd - odd.mean(axis=0), even - even.mean(axis=0)
        noise = np.array(self._differences) / np.sqrt(2)
        if (noise**2).sum() / len(noise) <= _ROUNDING * (odd**2).sum() / len(odd):
            K = _standardised_product(odd, even)
            return Signal(EXACT, self._directions(K, 0.0), measured=True)
        shaped = len(noise) >= _SAMPLES_FOR_SHAPE
        whitened = _whitening(noise, shaped=shaped)
        # The noise of the two halves is independent, so their product has no bias.
        K, N = whitened(odd, even), whitened(noise, noise)
        if np.trace(K) <= 0:
            return Signal(0.0, 1.0, measured=True)
        apart = ~np.eye(len(N), dtype=bool)
        blur = float((N[apart] ** 2).mean() * (1 / first).mean() * (1 / second).mean() / 2)
        directions = self._directions(K, blur)
        total = float(np.trace(K)) / (len(repeated) - 1) * (self._dim / noise.shape[1])
        ratio = total / directions / (_underestimated(noise) if shaped else 1.0)
        return Signal(ratio, directions, measured=True)

    def _directions(self, K: NDArray[np.float64], blur: float) -> float:
        """The participation ratio E‖g‖⁴ / E⟨g, h⟩² of what clients g and h have in their updates.

        K holds their products. Taken are the part that noise adds to the square of a product (`blur`), and
        the part that comes from subtracting the mean of few clients.
        """
        clients = len(K)
        apart = ~np.eye(clients, dtype=bool)
        products = (K + K.T) / 2
        energy = float(np.trace(K)) / clients
        share = (float((products[apart] ** 2).mean()) - blur) / energy**2 - 1 / (clients - 1) ** 2
        return 1 / min(max(share, 1 / self._dim), 1.0)


def _standardised_product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """a bᵀ after every entry is scaled to variance 1."""
    scale = np.maximum((a**2).mean(axis=0), np.finfo(np.float64).tiny)
    return np.asarray(a / scale @ b.T)


def _underestimated(noise: NDArray[np.float64]) -> float:
    """How many times as large the noise is as its shrunk covariance says; at least 1.

    A few samples (samples, entries) say little about most directions. So the covariance of every other sample
    is compared with the energy of the rest, and the other way round.
    """
    halves = noise[::2], noise[1::2]
    energies = [np.trace(_whitening(a)(b, b)) / b.size for a, b in (halves, halves[::-1])]
    return max(1.0, float(np.mean(energies)))


def _whitening(
    noise: NDArray[np.float64], *, shaped: bool = True
) -> Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]:
    """The product x S⁻¹ yᵀ, where S is the covariance of the `noise` (samples, entries), shrunk to a multiple
    of I by as much as the oracle approximating shrinkage of Chen et al. (2010) says. If not `shaped`, S is a
    multiple of I.

    S is never formed.
    """
    samples, entries = noise.shape
    products = noise @ noise.T
    G = products / samples  # the same eigenvalues as the sample covariance
    trace, square = float(np.trace(G)), float((G**2).sum())
    mean = trace / entries
    top = (1 - 2 / entries) * square + trace**2
    shrinkage = min(1.0, top / ((samples + 1 - 2 / entries) * max(square - trace**2 / entries, 1e-300)))
    if not shaped:
        shrinkage = 1.0
    floor = shrinkage * mean
    weight = (1 - shrinkage) / samples
    core = np.eye(samples) / max(weight, 1e-300) + products / floor

    def whitened(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        left, right = x @ noise.T / floor, noise @ y.T / floor
        return np.asarray(x @ y.T / floor - left @ np.linalg.solve(core, right))

    return whitened

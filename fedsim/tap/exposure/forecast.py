"""From who took part so far to a forecast: how many clients are exposed a few rounds from now.

Two things must come together before our attack separates clients by the sums. *Counting*: the rank of the
sums is the number of clients at most. Only when there are more rounds, sums begin to repeat themselves.
*Evidence*: the repetition must stand out from the noise (`evidence.py`). Counts can also give a client away
on their own, from the first window on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsim.tap.exposure.evidence import Signal, Windows, clear, given_away

MARGIN = 2.0
"""Evidence that our attack needs, relative to a perfect one. Calibrated on seeds 9000 to 9032 of
`benchmarks.monitor`: where a model learns, there was 2 to 18 times the evidence and the attack found columns;
where clients add three times as much noise, there was less, but for one of eight, and it found none."""
_TOLERANCE = 1e-9
"""Share of a row below which its rest counts as zero; rows hold zeros and ones."""
_Entry = TypeVar("_Entry", bound=np.generic)


class Participation:
    """Who took part in which round, and the rank of that matrix; both grow by one row per round."""

    def __init__(self) -> None:
        self._clients: dict[int, int] = {}
        self._matrix: NDArray[np.uint8] = np.zeros((16, 16), dtype=np.uint8)
        self.rounds = 0
        self.occupied = 0
        """Rounds in which anybody took part."""
        self.rank = 0
        self._independent: NDArray[np.intp] = np.zeros(16, dtype=np.intp)
        self._factor: NDArray[np.float64] = np.zeros((16, 16))
        """Cholesky factor of the Gram matrix of independent rows; a round adds a row to it, or none."""

    @property
    def clients(self) -> int:
        """Clients that took part so far."""
        return len(self._clients)

    @property
    def matrix(self) -> NDArray[np.uint8]:
        """(rounds, clients) 1 where a client took part."""
        return self._matrix[: self.rounds, : self.clients]

    def number(self, node: int) -> int:
        """The column of a node."""
        return self._clients.setdefault(node, len(self._clients))

    def add(self, nodes: Sequence[int]) -> None:
        """Add a round. It takes a product with the independent rows, and one triangular solve."""
        from scipy.linalg import solve_triangular

        chosen = [self.number(node) for node in nodes]
        self._matrix = _with_room(self._matrix, (self.rounds + 1, self.clients))
        self._matrix[self.rounds, chosen] = 1
        known, r = self._independent[: self.rank], self.rank
        overlaps = self._matrix[known][:, chosen].sum(axis=1, dtype=np.float64)
        row = solve_triangular(self._factor[:r, :r], overlaps, lower=True) if r else np.zeros(0)
        rest = len(chosen) - float(row @ row)
        if rest > _TOLERANCE * max(len(chosen), 1):
            self._independent = _with_room(self._independent, (r + 1,))
            self._factor = _with_room(self._factor, (r + 1, r + 1))
            self._independent[r] = self.rounds
            self._factor[r, :r], self._factor[r, r] = row, np.sqrt(rest)
            self.rank += 1
        self.rounds += 1
        self.occupied += bool(chosen)

    def expected_clients(self, rounds: int) -> float:
        """How many clients will have taken part so many rounds from now, by Good and Turing's estimate.

        The chance that a participation is somebody's first is the share of clients that took part once.
        """
        appearances = self.matrix.sum(axis=0, dtype=np.int64)
        total = int(appearances.sum())
        if not total:
            return 0.0
        new = float((appearances == 1).sum()) / total
        return self.clients + rounds * (total / self.occupied) * new

    def continued(self, rounds: int) -> NDArray[np.uint8]:
        """(rounds so far + rounds, clients) as it may go on: everybody takes part as often as so far."""
        rates = (self.matrix.sum(axis=0) + 0.5) / (self.occupied + 1)
        drawn = np.random.default_rng(self.rounds).random((rounds, self.clients)) < rates
        return np.concatenate((self.matrix, drawn.astype(np.uint8)))


@dataclass(frozen=True)
class Forecast:
    """Numbers of clients after a round.

    `by_counts` are exposed by published counts alone, `at_best` are those that a perfect attack could
    separate by now, and `expected` are those that our attack may separate by round `until`.
    """

    round: int
    until: int
    clients: int
    rank: int
    by_counts: int
    at_best: int
    expected: int
    signal: Signal

    def rests_on(self) -> str:
        """What the numbers are based on, in words."""
        if self.signal.measured:
            similarity = (
                f"a client's updates are alike {self.signal.ratio:.3g} times as much as they differ, in "
                f"{self.signal.directions:.0f} directions"
            )
        elif self.signal.exact:
            similarity = "a client's updates cannot be seen here, so they are taken for equal in all rounds"
        else:
            similarity = "too few clients took part twice to tell how alike a client's updates are"
        return (
            f"{self.round} rounds of {self.clients} clients, rank {self.rank}; {similarity}. "
            "Better attacks, or attackers who know more, may need fewer rounds."
        )


def repeats_soon(participation: Participation, ahead: int) -> bool:
    """Whether within so many rounds there may be more rounds than the rank of the sums."""
    rounds = participation.occupied
    return rounds > participation.rank or rounds + ahead > participation.expected_clients(ahead)


def forecast(participation: Participation, windows: Windows, signal: Signal, ahead: int) -> Forecast:
    """What is exposed by now, and `ahead` rounds later; `windows` are those published until then."""
    P, until = participation.matrix, participation.rounds + ahead
    by_counts = given_away(P, windows)
    expected = by_counts
    # Under noise our attack needs counts.
    if repeats_soon(participation, ahead) and (windows.stops or signal.exact):
        expected = by_counts | clear(participation.continued(ahead), windows, signal, margin=MARGIN)
    return Forecast(
        round=participation.rounds,
        until=until,
        clients=participation.clients,
        rank=participation.rank,
        by_counts=int(by_counts.sum()),
        at_best=int((by_counts | clear(P, windows, signal)).sum()),
        expected=int(expected.sum()),
        signal=signal,
    )


def _with_room(array: NDArray[_Entry], shape: tuple[int, ...]) -> NDArray[_Entry]:
    """The array, or a copy in a larger one: at least `shape`, and twice as long where it was too short."""
    if all(have >= want for have, want in zip(array.shape, shape, strict=True)):
        return array
    larger = np.zeros(
        [have if have >= want else 2 * want for have, want in zip(array.shape, shape, strict=True)],
        dtype=array.dtype,
    )
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger

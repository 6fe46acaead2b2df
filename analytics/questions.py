"""The plan that says when each device is asked for its counter.

It is drawn in advance from the seed, per client and round, so that an answer does not depend on the other
devices. Every device that is ever asked is also asked after the last round, so that no round is uncounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.core.seeds import Stage, stream
from fedsim.core.settings import BY_NAME, Settings


class EqualWindows(Settings):
    """All devices are asked at the same time, at the end of each window."""

    name: Literal["windows"] = "windows"
    cumulative: ClassVar[bool] = False

    def times(self, rounds: int, window: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds,) whether one device is asked after each round."""
        return np.asarray(np.arange(1, rounds + 1) % window == 0)


class OwnWindows(Settings):
    """Every device has its own window length and its own first round.

    The length is drawn within a fraction `spread` of the common one, which is also its mean.
    """

    name: Literal["own_windows"] = "own_windows"
    spread: Annotated[float, Field(ge=0, le=1)] = 0.5
    cumulative: ClassVar[bool] = False

    def times(self, rounds: int, window: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds,) whether one device is asked after each round."""
        wide = round(self.spread * (window - 1))
        own = int(rng.integers(window - wide, window + wide + 1))
        return np.asarray((np.arange(rounds) + int(rng.integers(own))) % own == 0)


class Cumulative(Settings):
    """Devices keep a cumulative counter, which is read at random times, every `window` rounds on average.

    Every count starts at round 0, and the count of a window is the difference of two readings.
    """

    name: Literal["cumulative"] = "cumulative"
    cumulative: ClassVar[bool] = True

    def times(self, rounds: int, window: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds,) whether one device is asked after each round."""
        return rng.random(rounds) < 1 / window


class Off(Settings):
    """No device is asked: there are no counts."""

    name: Literal["off"] = "off"


Collection = Annotated[EqualWindows | OwnWindows | Cumulative | Off, Field(discriminator="name"), BY_NAME]


@dataclass(frozen=True)
class Questions:
    """`asked` (rounds, clients): whether a device answers after a round; `heard`: and its answer arrives.

    A device starts a new window after every answer, even if the answer is lost. With `cumulative` an answer
    counts from round 0, otherwise from the device's last answer.
    """

    asked: NDArray[np.bool_]
    heard: NDArray[np.bool_]
    cumulative: bool = False

    @classmethod
    def plan(
        cls,
        collection: EqualWindows | OwnWindows | Cumulative | Off,
        *,
        window: int,
        late: float,
        missing: float,
        rounds: int,
        clients: int,
        seed: int,
    ) -> Questions:
        """Draw the times of the answers; `late` and `missing` are the chances of a delay and of a loss."""
        asked = np.zeros((rounds, clients), dtype=np.bool_)
        heard = np.zeros((rounds, clients), dtype=np.bool_)
        if isinstance(collection, Off):
            return cls(asked, heard)
        for client in range(clients):
            rng = stream(seed, Stage.TELEMETRY, client)
            times = collection.times(rounds, window, rng)
            delayed, lost = rng.random(rounds) < late, rng.random(rounds) < missing
            waiting = False
            for r in range(rounds):
                waiting |= bool(times[r])
                asked[r, client] = r == rounds - 1 or (waiting and not delayed[r])
                waiting &= not asked[r, client]
            heard[:, client] = asked[:, client] & ~lost
        return cls(asked, heard, collection.cumulative)

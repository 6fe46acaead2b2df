"""When which device is asked for its counter.

Decided ahead from the seed, by client and round, so that an answer does not depend on who else was asked.
At the end of the run everybody is asked who is asked at all: no round stays uncounted.
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
    """Every device is asked at the end of each window, all at the same time."""

    name: Literal["windows"] = "windows"
    cumulative: ClassVar[bool] = False

    def times(self, rounds: int, window: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds,) True where one device is asked after the round."""
        return np.asarray(np.arange(1, rounds + 1) % window == 0)


class OwnWindows(Settings):
    """Every device has a schedule of its own: its own window, and its own first round.

    A device's window is drawn within `spread` of the common one, which it is on average.
    """

    name: Literal["own_windows"] = "own_windows"
    spread: Annotated[float, Field(ge=0, le=1)] = 0.5
    cumulative: ClassVar[bool] = False

    def times(self, rounds: int, window: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds,) True where one device is asked after the round."""
        wide = round(self.spread * (window - 1))
        own = int(rng.integers(window - wide, window + wide + 1))
        return np.asarray((np.arange(rounds) + int(rng.integers(own))) % own == 0)


class Cumulative(Settings):
    """Devices keep a counter that only grows, and it is read at irregular times, about every `window` rounds.

    A count so starts at round 0, and a window is the difference of two readings.
    """

    name: Literal["cumulative"] = "cumulative"
    cumulative: ClassVar[bool] = True

    def times(self, rounds: int, window: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds,) True where one device is asked after the round."""
        return rng.random(rounds) < 1 / window


class Off(Settings):
    """Nobody is ever asked: no counts at all."""

    name: Literal["off"] = "off"


Collection = Annotated[EqualWindows | OwnWindows | Cumulative | Off, Field(discriminator="name"), BY_NAME]


@dataclass(frozen=True)
class Questions:
    """`asked` (rounds, clients): True where the device answers after the round; `heard`: and is understood.

    A device that answers without being heard starts a new window all the same. With `cumulative` an answer
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
        """Draw the times of the answers: late with a chance of `late` per round, lost with `missing`."""
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

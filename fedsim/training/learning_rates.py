"""Learning rates over rounds: one settings class per schedule, each with `factor(round)`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from fedsim.core.settings import BY_NAME, Settings

Share = Annotated[float, Field(gt=0, le=1)]


class RateSchedule(Settings, ABC):
    """What `clients.lr` is multiplied by in a round. The server announces it, so it is public."""

    name: str

    @abstractmethod
    def factor(self, round_index: int) -> float:
        """The factor of a round, counted from 0."""


class Constant(RateSchedule):
    """The same rate in every round."""

    name: Literal["constant"] = "constant"

    def factor(self, round_index: int) -> float:
        """One."""
        return 1.0


class Steps(RateSchedule):
    """The rate is multiplied by `drop` every so many rounds."""

    name: Literal["steps"] = "steps"
    every: PositiveInt = 50
    drop: Share = 0.5

    def factor(self, round_index: int) -> float:
        """A power of `drop`."""
        return float(self.drop ** (round_index // self.every))


class Exponential(RateSchedule):
    """The rate is multiplied by `decay` after every round."""

    name: Literal["exponential"] = "exponential"
    decay: Share = 0.99

    def factor(self, round_index: int) -> float:
        """A power of `decay`."""
        return float(self.decay**round_index)


class Cosine(RateSchedule):
    """Half a cosine from one down to `last`, reached after `rounds` rounds."""

    name: Literal["cosine"] = "cosine"
    rounds: PositiveInt = 100
    last: NonNegativeFloat = 0.01

    def factor(self, round_index: int) -> float:
        """Between one and `last`."""
        way = min(1.0, round_index / self.rounds)
        return self.last + (1 - self.last) * (1 + math.cos(math.pi * way)) / 2


AnyRateSchedule = Annotated[Constant | Steps | Exponential | Cosine, Field(discriminator="name"), BY_NAME]

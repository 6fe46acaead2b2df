"""The contract of secure summing: settings, the devices they enrol, and one round from invitation to sum.

A way of summing has three parts. Its settings are a section of the scenario. They enrol the devices before
the first round, which gives a `Summation`. That opens a `SummingRound` for every cohort.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr.app import Message
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod
    from flwr.serverapp import Grid


@dataclass(frozen=True)
class Invitation:
    """The devices that are asked to train in a round, the grid that reaches them, and the server's message.

    `nodes` are in the order of their clients' numbers, so that nothing depends on Flower's random ids.
    """

    grid: Grid
    server_round: int
    instruction: Message
    nodes: tuple[int, ...]

    @property
    def dim(self) -> int:
        """Entries of the model, and of an update."""
        from fedsim.flower import record_vector

        return len(record_vector(self.instruction))


@dataclass(frozen=True)
class RoundSum:
    """`total` (dim,) float32 is the sum of the updates of `members` (node ids); `weight` their examples.

    In a void round devices sent updates that cannot be summed: it has no members, a zero total and the weight
    NaN. A round in which no device sent an update has no members and the weight 0.
    """

    total: NDArray[np.float32]
    weight: float
    members: tuple[int, ...]

    @classmethod
    def of_nobody(cls, dim: int) -> Self:
        """The sum of no updates."""
        return cls(np.zeros(dim, dtype=np.float32), 0.0, ())

    @classmethod
    def void(cls, dim: int) -> Self:
        """The updates that were sent are lost."""
        return cls(np.zeros(dim, dtype=np.float32), float("nan"), ())


class SummingRound(ABC):
    """A round in progress."""

    messages: list[Message]
    """The calls for training, ready when the round is open."""

    @abstractmethod
    def close(self, replies: Iterable[Message]) -> RoundSum:
        """The sum of the updates that arrived; it does not depend on the order of the replies."""


class Summation(ABC):
    """A way of summing after enrolment: it knows all devices."""

    @abstractmethod
    def open_round(self, invitation: Invitation) -> SummingRound:
        """Begin a round."""


class SummationSettings(Settings, ABC):
    """A way of summing as a scenario names it, with its part on the devices.

    To add one, write a subclass with a `name` and add it to `Aggregation` in `fedsim.trusted.summation`.
    """

    further_messages: ClassVar[int]
    """Messages to every member of a cohort in a round, besides the call for training."""

    @abstractmethod
    def check_cohort(self, size: int) -> None:
        """A `UserError` if cohorts of this size cannot be summed; called before any training."""

    @abstractmethod
    def enrol(self, grid: Grid, nodes: Sequence[int]) -> Summation:
        """Make all devices known, before the first round; `nodes` are in the order of their clients."""

    @abstractmethod
    def device_mods(self) -> list[Mod]:
        """Client mods that change an update just before it leaves its device, after all defences."""

    @abstractmethod
    def teach(self, app: ClientApp) -> None:
        """Register the queries that devices answer."""

"""One round of summing: from an invitation to the sum of what arrived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numba
import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedsim.flower import WEIGHT, metrics_in, record_vector
from fedsim.trusted.replies import delivered

_STRETCH = 32_768


@dataclass(frozen=True)
class Invitation:
    """Who is asked to train in a round, over which grid, and what the server says to them.

    `nodes` are in the order of their clients' numbers, so that nothing depends on Flower's random ids.
    """

    grid: Grid
    server_round: int
    instruction: Message
    nodes: tuple[int, ...]

    @property
    def dim(self) -> int:
        """Entries of the model, and of an update."""
        return len(record_vector(self.instruction))


@dataclass(frozen=True)
class RoundSum:
    """`total` (dim,) float32, the sum of the updates of `members` (node ids), and their examples.

    A void round, whose updates were sent but cannot be summed, has no members, a zero total and the
    weight NaN. A round in which nobody sent anything has no members and the weight 0.
    """

    total: NDArray[np.float32]
    weight: float
    members: tuple[int, ...]

    @classmethod
    def of_nobody(cls, dim: int) -> Self:
        """Nothing was sent."""
        return cls(np.zeros(dim, dtype=np.float32), 0.0, ())

    @classmethod
    def void(cls, dim: int) -> Self:
        """What was sent is lost."""
        return cls(np.zeros(dim, dtype=np.float32), float("nan"), ())


class SummingRound(Protocol):
    """A round that is under way; `messages` start the training."""

    messages: list[Message]

    def close(self, replies: Iterable[Message]) -> RoundSum:
        """The sum of the updates that arrived."""


class IdealRound:
    """The server side sees every update, adds it and forgets it."""

    def __init__(self, invitation: Invitation) -> None:
        self._invitation = invitation
        instruction = invitation.instruction
        self.messages = [
            Message(instruction.content, node, instruction.metadata.message_type) for node in invitation.nodes
        ]

    def close(self, replies: Iterable[Message]) -> RoundSum:
        """The sum of the updates that arrived, accumulated in float64 in the order of the clients."""
        arrived = delivered(replies)
        members = tuple(node for node in self._invitation.nodes if node in arrived)
        if not members:
            return RoundSum.of_nobody(self._invitation.dim)
        total = _sum([record_vector(arrived[node]) for node in members])
        weight = sum(_weight(arrived[node]) for node in members)
        return RoundSum(total, weight, members)


def _sum(updates: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Their sum in float64, rounded once at the end; a stretch at a time, which stays in the cache."""
    total = np.empty_like(updates[0])
    for begin in range(0, len(total), _STRETCH):
        stretch = slice(begin, begin + _STRETCH)
        exact = updates[0][stretch].astype(np.float64)
        for update in updates[1:]:
            _add(exact, update[stretch])
        total[stretch] = exact
    return total


@numba.njit(nogil=True, cache=True)
def _add(to: NDArray[np.float64], vector: NDArray[np.float32]) -> None:
    """`to += vector`, without converting the vector first as NumPy does."""
    for i in range(len(to)):
        to[i] += vector[i]


def _weight(reply: Message) -> float:
    return float(metrics_in(reply.content, "metrics")[WEIGHT])  # type: ignore[arg-type]

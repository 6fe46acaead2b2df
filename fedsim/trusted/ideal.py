"""Ideal summing: add the updates and forget them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numba
import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedsim.flower import WEIGHT, metrics_in, record_vector
from fedsim.trusted.replies import delivered
from fedsim.trusted.rounds import Invitation, RoundSum, Summation, SummingRound

_SUMMED_TOGETHER = 32_768
"""Entries that are summed at a time: their float64 sums stay in the cache."""


class IdealSummation(Summation):
    """Needs to know nothing about the devices.

    Entries of a sum to which fewer than `least` updates contribute are withheld: they are zero.
    """

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def open_round(self, invitation: Invitation) -> IdealRound:
        """Begin a round."""
        return IdealRound(invitation, self._least)


class IdealRound(SummingRound):
    """The trusted part sees every update, adds it and forgets it."""

    def __init__(self, invitation: Invitation, least: int = 1) -> None:
        self._invitation, self._least = invitation, least
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
        updates = [record_vector(arrived[node]) for node in members]
        total = _sum(updates)
        if self._least > 1:
            contributors = np.zeros(len(total), dtype=np.int32)
            for update in updates:
                contributors += update != 0
            total[contributors < self._least] = 0
        weight = sum(_weight(arrived[node]) for node in members)
        return RoundSum(total, weight, members)


def _sum(updates: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The sum in float64, rounded once at the end."""
    total = np.empty_like(updates[0])
    for begin in range(0, len(total), _SUMMED_TOGETHER):
        part = slice(begin, begin + _SUMMED_TOGETHER)
        exact = updates[0][part].astype(np.float64)
        for update in updates[1:]:
            _add(exact, update[part])
        total[part] = exact
    return total


@numba.njit(nogil=True, cache=True)
def _add(to: NDArray[np.float64], vector: NDArray[np.float32]) -> None:
    """`to += vector`, without converting the vector first as NumPy does."""
    for i in range(len(to)):
        to[i] += vector[i]


def _weight(reply: Message) -> float:
    return float(metrics_in(reply.content, "metrics")[WEIGHT])  # type: ignore[arg-type]

"""Masked summing of flat updates, as a scenario runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedsim.trusted.masking.device_side import MASKING
from fedsim.trusted.masking.enrolment import enrol
from fedsim.trusted.masking.protocol import ProtocolRound
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.replies import delivered
from fedsim.trusted.rounds import Invitation, RoundSum, Summation, SummingRound


@dataclass(frozen=True)
class MaskedSummation(Summation):
    """Opens masked rounds among devices that have enrolled; `clients` maps nodes to client numbers."""

    settings: Masked
    clients: Mapping[int, int]

    @classmethod
    def enrol(cls, settings: Masked, grid: Grid, nodes: Sequence[int]) -> MaskedSummation:
        """Register the long-term keys of all devices."""
        return cls(settings, enrol(grid, nodes))

    def open_round(self, invitation: Invitation) -> MaskedRound:
        """Begin a round: agree on keys and exchange shares."""
        return MaskedRound(self.settings, self.clients, invitation)


class MaskedRound(SummingRound):
    """A round of the protocol whose words are flat updates with their weights."""

    def __init__(self, settings: Masked, clients: Mapping[int, int], invitation: Invitation) -> None:
        settings.check_cohort(len(invitation.nodes))
        self._settings, self._invitation = settings, invitation
        grid, instruction = invitation.grid, invitation.instruction
        self._protocol = ProtocolRound(
            settings,
            clients,
            invitation.server_round,
            invitation.nodes,
            lambda questions: delivered(grid.send_and_receive(questions)),
        )
        self.messages = [
            Message(
                RecordDict({**instruction.content, MASKING: order}), node, instruction.metadata.message_type
            )
            for node, order in self._protocol.orders.items()
        ]

    def close(self, replies: Iterable[Message]) -> RoundSum:
        """The sum of the updates that arrived, or a void round."""
        dim = self._invitation.dim
        if not self._invitation.nodes:
            return RoundSum.of_nobody(dim)
        summed = self._protocol.total(delivered(replies))
        if summed is None:
            return RoundSum.void(dim)
        words, members = summed
        update, weight = self._settings.fixed_point.decode(words)
        return RoundSum(update, float(weight), members)

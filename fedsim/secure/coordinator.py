"""The server's part of secure sums over a whole training: enrolment, then one round after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import WARNING

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedsim.core.errors import UserError
from fedsim.secure.fleet import EnrolledGrid, Fleet, Send
from fedsim.secure.rounds import SecureRound
from fedsim.secure.terms import Terms
from fedsim.server.attachment import SummedReply
from fedsim.trusted.masking.errors import ProtocolError
from fedsim.trusted.masking.neighbours import LARGEST_COHORT
from fedsim.trusted.masking.settings import Masked


class Coordinator:
    """Enrols the clients before the first round, and keeps the round that is open.

    `wanted` clients have to be connected before the training begins. Protocol messages wait for their replies
    for `time_limit_s`.
    """

    def __init__(
        self, masked: Masked, *, weighted_by: str | None, weight_key: str, wanted: int, time_limit_s: float
    ) -> None:
        self._masked, self._weighted_by, self._weight_key = masked, weighted_by, weight_key
        self._wanted, self._time_limit_s = wanted, time_limit_s
        self._fleet: Fleet | None = None
        self._number = 0
        self._open: SecureRound | None = None
        self.summed, self.void = 0, 0
        """Rounds so far."""

    def configure(self, grid: Grid, draw: Callable[[Grid], Iterable[Message]], terms: Terms) -> list[Message]:
        """The messages of a strategy, which draws its sample from the grid it is given, with their masks."""

        def send(messages: Iterable[Message]) -> Iterable[Message]:
            return grid.send_and_receive(messages, timeout=self._time_limit_s)

        if self._fleet is None:
            self._fleet = Fleet.enrol(grid, send, self._masked, self._weighted_by, self._wanted)
            self._number = self._fleet.last_round
        calls = list(draw(EnrolledGrid(grid, self._fleet.numbers)))
        self._open = None
        if not calls:
            return []
        self._check_cohort(len(calls))
        return self._opened(calls, terms, send)

    def aggregate(self, replies: Iterable[Message]) -> SummedReply | None:
        """The one reply that stands for the cohort; None if the round is void."""
        replies = list(replies)
        summed = None
        if self._open is not None:
            try:
                summed = self._open.close(replies)
            except ProtocolError as error:
                log(WARNING, "SecureAggregation: %s", error)
            if summed is None and not self.summed and self._open.unsendable:
                # Nobody can send anything: the settings are wrong.
                raise UserError(f"SecureAggregation: {self._open.unsendable[0]}")
        self._open = None
        if summed is None:
            self.void += 1
            log(WARNING, "SecureAggregation: too few clients delivered: the round is void")
        else:
            self.summed += 1
        return summed

    def _opened(self, calls: list[Message], terms: Terms, send: Send) -> list[Message]:
        assert self._fleet is not None
        self._number += 1
        try:
            self._open = SecureRound(
                calls,
                terms=terms,
                weight_key=self._weight_key,
                masked=self._masked,
                numbers=self._fleet.numbers,
                number=self._number,
                send=send,
            )
        except ProtocolError as error:
            # A faulty client costs a round, not the training.
            log(WARNING, "SecureAggregation: %s", error)
            return []
        return self._open.messages

    def _check_cohort(self, size: int) -> None:
        """Before the first sum: a strategy that invites too few, or too many, would never get one."""
        least = self._masked.minimum_cohort
        if size > LARGEST_COHORT:
            raise UserError(
                f"SecureAggregation: the strategy invites {size} clients, expected at most {LARGEST_COHORT}"
            )
        if size < least and not self.summed:
            raise UserError(
                f"SecureAggregation: the strategy invites {size} clients, and a secure sum needs at least "
                f"{least}: raise fraction_train or min_train_nodes"
            )

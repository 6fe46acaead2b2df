"""Devices that fail: switched off, interrupted during training, or disconnected before they deliver."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fedsim.core.seeds import Stage, stream
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp.typing import ClientAppCallable, Mod

Rate = Annotated[float, Field(ge=0, le=1)]


class Failure(StrEnum):
    """What happens to a device in a round."""

    ABSENT = "absent"
    INTERRUPTED = "interrupted"
    LOST = "lost"


class Failures(Settings):
    """How often an invited device fails in a round, by kind; at most one kind happens in a round.

    A device that failed is back in the next round. Its counter counts every finished training: a `lost` round
    is in the counts and not in the sum.
    """

    absent: Rate = 0.0
    """The device answers nothing during the round: it is switched off, or too slow."""
    interrupted: Rate = 0.0
    """The device joins the round and agrees on masks, if there are any, but does not finish its training."""
    lost: Rate = 0.0
    """The device trains and counts the round, but its update does not arrive."""

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        if self.absent + self.interrupted + self.lost > 1:
            raise PydanticCustomError("rates", "expected rates that add up to at most 1")
        return self

    def draw(self, seed: int, client: int, round_index: int) -> Failure | None:
        """The failure of a client in a round, if any: a function of the seed, the client and the round."""
        chance = stream(seed, Stage.DEVICE, client, round_index).random()
        for failure, rate in (
            (Failure.ABSENT, self.absent),
            (Failure.INTERRUPTED, self.interrupted),
            (Failure.LOST, self.lost),
        ):
            chance -= rate
            if chance < 0:
                return failure
        return None

    def trains(self, seed: int, client: int, round_index: int) -> bool:
        """Whether a client that is invited to a round finishes its training."""
        return self == Failures() or self.draw(seed, client, round_index) in (None, Failure.LOST)

    def device_mods(self, seed: int) -> list[Mod]:
        """The outermost client mod, which makes devices fail; none if they never fail."""
        if self == Failures():
            return []
        from flwr.app import Error, Message

        from fedsim.flower import client_number, round_number
        from fedsim.trusted.replies import DEVICE_FAILED

        def failing_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
            if "config" not in message.content:
                # Not part of a round, for example telemetry: by then the device is available again.
                return call_next(message, context)
            client, is_training = client_number(context), message.metadata.message_type == "train"
            failure = self.draw(seed, client, round_number(message) - 1)
            if failure is None or (failure is not Failure.ABSENT and not is_training):
                return call_next(message, context)
            if failure is Failure.LOST:
                call_next(message, context)
            return Message(Error(DEVICE_FAILED, f"client {client}: {failure}"), reply_to=message)

        return [failing_mod]

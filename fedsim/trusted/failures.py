"""Devices that fail: switched off, interrupted, or cut off with a finished update in hand."""

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
    """How often a device that is invited to a round fails in it; at most one thing goes wrong at a time.

    A device that failed is back in the next round. Its counter counts what it trained: a `lost` round is
    in the counts and not in the sum.
    """

    absent: Rate = 0.0
    """Answers nothing all round: switched off, or too slow to be waited for."""
    interrupted: Rate = 0.0
    """Joins the round, and agrees on masks if there are any, but never trains to the end."""
    lost: Rate = 0.0
    """Trains and counts the round, but its update does not arrive."""

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        if self.absent + self.interrupted + self.lost > 1:
            raise PydanticCustomError("rates", "expected rates that add up to at most 1")
        return self

    def draw(self, seed: int, client: int, round_index: int) -> Failure | None:
        """What goes wrong with a client in a round: a function of the seed, the client and the round."""
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
        """Whether a client that is invited to a round gets through its training."""
        return self == Failures() or self.draw(seed, client, round_index) in (None, Failure.LOST)

    def device_mods(self, seed: int) -> list[Mod]:
        """The client mod, outermost of all, that makes devices fail; none if they never do."""
        if self == Failures():
            return []
        from flwr.app import Error, Message

        from fedsim.flower import client_number, round_number
        from fedsim.trusted.replies import DEVICE_FAILED

        def failing_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
            if "config" not in message.content:
                # Not part of a round, as telemetry is: the device is up again by then.
                return call_next(message, context)
            client, is_training = client_number(context), message.metadata.message_type == "train"
            failure = self.draw(seed, client, round_number(message) - 1)
            if failure is None or (failure is not Failure.ABSENT and not is_training):
                return call_next(message, context)
            if failure is Failure.LOST:
                call_next(message, context)
            return Message(Error(DEVICE_FAILED, f"client {client}: {failure}"), reply_to=message)

        return [failing_mod]

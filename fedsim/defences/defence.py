"""What a defence is: hooks for devices, for sums and for the server, and what it needs and promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import PydanticCustomError

from fedsim.core.plugins import PlugIn
from fedsim.core.seeds import Stage, stream

if TYPE_CHECKING:
    import numpy as np
    from flwr.app import Context, Message
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.serverapp.strategy import Strategy
    from numpy.typing import NDArray


class Defence(PlugIn):
    """A change to the honest world that is meant to protect its clients; a subclass overrides its hooks.

    A scenario lists defences in the order in which they change an update, and then a sum. `place` is the
    position of a defence in that list: with the seed, the client and the round it addresses the randomness.

    The class attributes declare what a defence needs and promises. Scenarios with an order that breaks a
    promise are refused (`in_order`), and a contract test holds every defence to its declaration.
    """

    never_lengthens: ClassVar[bool] = False
    """Promise: no update leaves the device with a larger L2 norm than it came with."""
    needs_bounded_length: ClassVar[bool] = False
    """Need: every later defence never lengthens an update, or the stated ε does not hold."""
    states_epsilon: ClassVar[bool] = False
    """Promise: the statement has `epsilon_per_round`, and `epsilon_in_all` over `releases` rounds, and says
    what they hide (`hides`)."""

    @property
    def needs_plain_mean(self) -> bool:
        """Need: the next model is the mean of updates that count once each, or the stated ε does not hold."""
        return False

    def device_mods(self, seed: int, place: int) -> list[Mod]:
        """Client mods that change the update that a device sends."""
        return []

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The vector (dim,) that a device sends instead of its update."""
        return update

    def on_sum(self, total: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The sum (dim,) that the trusted aggregation hands to the server."""
        return total

    def on_server(self, strategy: Strategy, *, seed: int, place: int) -> Strategy:
        """The server's own strategy, which gets the sum."""
        return strategy

    def statement(self, most_rounds: int) -> dict[str, Any]:
        """The settings, and the promise to a client that takes part in at most `most_rounds` rounds."""
        return self.model_dump(mode="json")


class UpdateDefence(Defence, ABC):
    """A defence that changes each update on its device, before anything leaves it."""

    @abstractmethod
    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The vector (dim,) that the device sends instead of its update."""

    def device_mods(self, seed: int, place: int) -> list[Mod]:
        """One mod, which changes the reply to a call for training."""
        from fedsim.flower import client_number, record_vector, round_number, vector_record

        def changing_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
            reply = call_next(message, context)
            if message.metadata.message_type == "train" and not reply.has_error():
                address = place, client_number(context), round_number(message) - 1
                changed = self.on_update(record_vector(reply), stream(seed, Stage.DEFENCE, *address))
                reply.content["arrays"] = vector_record(changed)
            return reply

        return [changing_mod]


def in_order(defences: tuple[Defence, ...]) -> tuple[Defence, ...]:
    """The same defences; refuses an order in which a need of one is broken by a later one."""
    bounded = None
    for defence in defences:
        if bounded is not None and not defence.never_lengthens:
            # An update would add more to the sum than the noise was made for: ε would not hold.
            raise PydanticCustomError(
                "order", "expected {a} before {b}", {"a": defence.name, "b": bounded.name}
            )
        bounded = bounded or (defence if defence.needs_bounded_length else None)
    return defences

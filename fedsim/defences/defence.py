"""What a defence is: hooks for devices, for sums and for the server, which do nothing by default."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fedsim.core.seeds import Stage, stream
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from flwr.app import Context, Message
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.serverapp.strategy import Strategy
    from numpy.typing import NDArray


class Defence(Settings):
    """A change to the honest world that is meant to protect its clients; a subclass overrides its hooks.

    A scenario lists defences in the order in which they meet an update, and then a sum. `place` is a
    defence's place in that list: with the seed, the client and the round it addresses its randomness.
    """

    name: str
    never_lengthens: ClassVar[bool] = False
    """Whether no update leaves longer than it came."""
    counts_on_length: ClassVar[bool] = False
    """Whether what it promises rests on updates that nobody lengthens after it."""

    def device_mods(self, seed: int, place: int) -> list[Mod]:
        """Client mods that change what a device sends."""
        return []

    def on_sum(self, total: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The sum (dim,) that the trusted aggregation hands to the server."""
        return total

    def on_server(self, strategy: Strategy, *, seed: int, place: int) -> Strategy:
        """The server's own strategy, which has the sum already."""
        return strategy

    def statement(self, most_rounds: int) -> dict[str, Any]:
        """The settings, and what they promise to a client that takes part in at most so many rounds."""
        return self.model_dump(mode="json")


class UpdateDefence(Defence, ABC):
    """A defence that changes each update on its device, before anything leaves it."""

    @abstractmethod
    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """What the device sends instead of its update (dim,)."""

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

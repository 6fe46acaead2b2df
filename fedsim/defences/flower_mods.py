"""Flower's own client mods, on devices that send updates.

Flower's mods expect a reply that carries a trained model and take the difference to the model that was sent;
devices here send the difference. They also draw from NumPy's global generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedsim.core.seeds import Stage, stream
from fedsim.flower import PARAMETERS, client_number, record_vector, round_number, vector_record


def for_updates(mod: Mod, seed: int, place: int) -> Mod:
    """The mod, given the model that the update leads to, and its result as an update again.

    Its randomness depends on the seed, its place, the client and the round alone.
    """

    def adapted(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type != "train" or reply.has_error():
            return reply
        # In double precision: the difference of two models in single precision would lose the update.
        sent = record_vector(message).astype(np.float64)
        reply.content["arrays"] = ArrayRecord({PARAMETERS: Array(sent + record_vector(reply))})
        address = place, client_number(context), round_number(message) - 1
        with global_generator(stream(seed, Stage.DEFENCE, *address)):
            changed = mod(message, context, lambda *_: reply)
        if not changed.has_error():
            model = changed.content.array_records["arrays"][PARAMETERS].numpy()
            changed.content["arrays"] = vector_record((model - sent).astype(np.float32))
        return changed

    return adapted


@contextmanager
def global_generator(rng: np.random.Generator) -> Iterator[None]:
    """Let code that draws from NumPy's global generator draw from a stream of ours; the state is put back."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(rng.integers(2**32, size=8, dtype=np.uint32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002

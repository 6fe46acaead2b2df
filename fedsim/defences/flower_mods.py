"""An adapter for Flower's own client mods, because devices here send updates.

Flower's mods expect a reply with a trained model and subtract the model that was sent; devices here send the
difference. The mods also draw from NumPy's global generator.
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
    """The mod between two conversions: update to trained model before it, and back to an update after it.

    Its randomness depends only on the seed, its place, the client and the round.
    """

    def adapted(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type != "train" or reply.has_error():
            return reply
        # In double precision: the difference of two models in single precision would lose the update.
        sent = record_vector(message).astype(np.float64)
        trained = sent + record_vector(reply)
        if np.array_equal(trained, sent):
            # Flower's clipping divides by the length of the update.
            trained[0] += np.finfo(np.float64).eps * max(1.0, abs(trained[0]))
        reply.content["arrays"] = ArrayRecord({PARAMETERS: Array(trained)})
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
    """Code in this block that uses NumPy's global generator draws from `rng`; the old state is restored."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(rng.integers(2**32, size=8, dtype=np.uint32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002

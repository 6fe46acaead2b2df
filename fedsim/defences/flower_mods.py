"""An adapter for Flower's own client mods, because devices here send updates.

Flower's mods expect a reply with a trained model and subtract the model that was sent; devices here send the
difference. The mods also draw from NumPy's global generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

from fedsim.core.seeds import Stage, stream
from fedsim.flower import (
    PARAMETERS,
    client_number,
    enter_task,
    record_vector,
    round_number,
    vector_record,
)

_NODE = 1
"""Node id in a message that never leaves the process."""


def for_updates(mod: Mod, seed: int, place: int) -> Mod:
    """The mod between two conversions: update to trained model before it, and back to an update after it.

    Its randomness depends only on the seed, its place, the client and the round.
    """

    def adapted(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type != "train" or reply.has_error():
            return reply
        address = place, client_number(context), round_number(message) - 1
        return _changed(mod, message, context, reply, stream(seed, Stage.DEFENCE, *address))

    return adapted


def changed_update(mod: Mod, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """What the mod makes of an update (dim,)."""
    enter_task()
    message = Message(RecordDict({"arrays": vector_record(np.zeros_like(update))}), _NODE, "train")
    reply = Message(RecordDict({"arrays": vector_record(update)}), reply_to=message)
    context = Context(_NODE, _NODE, {}, RecordDict(), {})
    return record_vector(_changed(mod, message, context, reply, rng))


def _changed(
    mod: Mod, message: Message, context: Context, reply: Message, rng: np.random.Generator
) -> Message:
    """The reply with an update, after the mod has changed the model that it leads to."""
    # In double precision: the difference of two models in single precision would lose the update.
    sent = record_vector(message).astype(np.float64)
    trained = sent + record_vector(reply)
    if np.array_equal(trained, sent):
        # Flower's clipping divides by the length of the update.
        trained[0] += np.finfo(np.float64).eps * max(1.0, abs(trained[0]))
    reply.content["arrays"] = ArrayRecord({PARAMETERS: Array(trained)})
    with global_generator(rng):
        changed = mod(message, context, lambda *_: reply)
    if not changed.has_error():
        model = changed.content.array_records["arrays"][PARAMETERS].numpy()
        changed.content["arrays"] = vector_record((model - sent).astype(np.float32))
    return changed


@contextmanager
def global_generator(rng: np.random.Generator) -> Iterator[None]:
    """Code in this block that uses NumPy's global generator draws from `rng`; the old state is restored."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(rng.integers(2**32, size=8, dtype=np.uint32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002

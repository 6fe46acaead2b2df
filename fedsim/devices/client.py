"""A device: a Flower `ClientApp` that trains on its own examples and sends its update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from fedsim.defences.defence import Defence
from fedsim.devices.trainer import Trainer
from fedsim.flower import (
    WEIGHT,
    client_number,
    enter_task,
    parameters_of,
    record_vector,
    round_number,
    vector_record,
)
from fedsim.training.local_work import Weighting
from fedsim.trusted.diary import answer_diary_queries, diary_mod
from fedsim.trusted.rounds import SummationSettings

IDENTIFY = "query.identify"
"""Message type that asks a node for its partition, so that schedules can speak of clients."""

_KEPT = "kept"
"""A device's own vector from one of its rounds to the next, such as SCAFFOLD's control variate."""

_NODE = 1
"""Node id in a message that never leaves the process."""


def build_client_app(
    trainer: Trainer,
    aggregation: SummationSettings,
    *,
    defences: Sequence[Defence] = (),
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """The app that every device runs; `trainer` does its training.

    On `train` a device answers with its update (`arrays`), weighted as the settings say, and the number of
    examples it used (`metrics`). Defences get the weighted update: a norm bounds what it adds to a sum.
    The mods from the outside in: failures, the `mods` given here, the device's part of the `aggregation`,
    the diary, and the `defences`, of which the first is innermost. So the diary holds the update that goes
    into the sum, after all defences.
    Its batches depend on the seed, its number and the round alone, so any engine gets the same update.
    """
    seed = trainer.seed
    failing = trainer.settings.failures.device_mods(seed)
    defending = _defending(defences, seed)
    app = ClientApp(mods=[*failing, *mods, *aggregation.device_mods(), diary_mod, *defending])
    aggregation.teach(app)
    answer_diary_queries(app)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = client_number(context)
        examples = trainer.examples_used(client)
        kept = parameters_of(context.state[_KEPT]) if _KEPT in context.state else None
        update, kept = trainer.answer(client, round_number(message) - 1, record_vector(message), kept)
        if kept is not None:
            context.state[_KEPT] = vector_record(kept)
        update = weighted(update, trainer.settings.weighting, examples)
        metrics = MetricRecord({WEIGHT: examples})
        return Message(RecordDict({"arrays": vector_record(update), "metrics": metrics}), reply_to=message)

    @app.query("identify")
    def identify(message: Message, context: Context) -> Message:
        content = RecordDict({"identity": MetricRecord({"client": client_number(context)})})
        return Message(content, reply_to=message)

    return app


def defended_update(
    update: NDArray[np.float32],
    start: NDArray[np.float32],
    defences: Sequence[Defence],
    *,
    seed: int,
    client: int,
    round_index: int,
) -> NDArray[np.float32]:
    """The update (dim,) of the model `start` after the device's defences; no other mods are applied."""
    enter_task()
    app = ClientApp(mods=_defending(defences, seed))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({WEIGHT: 1})
        return Message(RecordDict({"arrays": vector_record(update), "metrics": metrics}), reply_to=message)

    config = ConfigRecord({"server-round": round_index + 1})
    call = Message(RecordDict({"arrays": vector_record(start), "config": config}), _NODE, "train")
    context = Context(_NODE, _NODE, {"partition-id": client}, RecordDict(), {})
    return record_vector(app(call, context))


def weighted(update: NDArray[np.float32], weighting: Weighting, examples: int) -> NDArray[np.float32]:
    """The vector (dim,) that a device with that many examples adds to a sum, before its defences."""
    return update if weighting == "equal" else update * np.float32(examples)


def _defending(defences: Sequence[Defence], seed: int) -> list[Mod]:
    """The defences' mods from the outside in: the first defence meets an update first."""
    mods = [mod for place, defence in enumerate(defences) for mod in defence.device_mods(seed, place)]
    return mods[::-1]

"""A device: a Flower `ClientApp` that trains on its own images and sends its update."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedsim.data import ImageData, Owned
from fedsim.diary import answer_diary_queries, diary_mod
from fedsim.federation import ClientSettings
from fedsim.flower import WEIGHT, client_number, record_vector, round_number, vector_record
from fedsim.models import Model
from fedsim.seeds import Stage, stream
from fedsim.summation import Aggregation
from fedsim.training import FlatModel, as_input, initial_model, local_update

IDENTIFY = "query.identify"
"""Message type that asks a node for its partition, so that schedules can speak of clients."""


def build_client_app(
    *,
    data: ImageData,
    owned: Owned,
    model: Model,
    settings: ClientSettings,
    seed: int,
    aggregation: Aggregation,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """The app that every device runs; `owned` says whose images are whose.

    On `train` a device answers with its update (`arrays`) and the number of images it used (`metrics`).
    From the outside in: what may fail, the `mods` given here, what `aggregation` does to an update before
    it leaves, and the diary, which so holds the update as it was made.
    Its batches depend on the seed, its number and the round alone, so any engine gets the same update.
    """
    # The networks are small: one thread is fastest, and sums come out the same on every machine.
    torch.set_num_threads(1)
    images, labels = as_input(data.train_images), torch.from_numpy(data.train_labels)
    shape, classes = data.image_shape, len(data.class_names)
    scratch = FlatModel(initial_model(model, shape, classes, stream(seed, Stage.MODEL)))
    app = ClientApp(mods=[*settings.failures.device_mods(seed), *mods, *aggregation.device_mods(), diary_mod])
    aggregation.teach(app)
    answer_diary_queries(app)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, server_round = client_number(context), round_number(message)
        mine = torch.from_numpy(owned[client])
        update = local_update(
            scratch,
            record_vector(message),
            images=images[mine],
            labels=labels[mine],
            settings=settings,
            rng=stream(seed, Stage.CLIENT, client, server_round - 1),
        )
        used = max(1, round(settings.data_fraction * len(mine)))
        return Message(
            RecordDict({"arrays": vector_record(update), "metrics": MetricRecord({WEIGHT: used})}),
            reply_to=message,
        )

    @app.query("identify")
    def identify(message: Message, context: Context) -> Message:
        content = RecordDict({"identity": MetricRecord({"client": client_number(context)})})
        return Message(content, reply_to=message)

    return app

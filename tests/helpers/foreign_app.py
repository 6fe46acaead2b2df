"""A Flower app as users write them: named arrays of several types, models as replies, its own metrics."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim.flower import enter_local_task
from fedsim.grids.inline import InlineGrid

SHAPES = {"layer.weight": (4, 3), "layer.bias": (4,)}


def initial_arrays(dtype=np.float32):
    """A model with trained arrays, a buffer of BatchNorm and a counter."""
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}
    arrays["norm.running_mean"] = np.zeros(4, dtype)
    arrays["norm.num_batches_tracked"] = np.array(0)
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def own_update(client, name):
    """What training adds to an array of the model, the same in every round."""
    return np.random.default_rng([client, len(name)]).standard_normal(SHAPES[name]) / 8


def examples_of(client):
    return 5 + client


def foreign_app(failing=(), wrong=(), floats_only=False, mods=()):
    """Clients in `failing` answer with an error, clients in `wrong` with arrays of another shape."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        if client in failing:
            return Message(Error(code=7, reason="out of memory"), reply_to=message)
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        for name in SHAPES:
            arrays[name] = arrays[name] + own_update(client, name).astype(arrays[name].dtype)
            if client in wrong:
                arrays[name] = arrays[name][:2]
        if not floats_only:
            arrays["norm.running_mean"] = arrays["norm.running_mean"] + client
            arrays["norm.num_batches_tracked"] = arrays["norm.num_batches_tracked"] + 1
        content: dict[str, Any] = {
            "model": ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()}),
            "metrics": MetricRecord({"num-examples": examples_of(client), "loss": 1.0 / (client + 1)}),
        }
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": 1, "accuracy": 0.5})}), reply_to=message
        )

    return app


def foreign_grid(clients=8, **kwargs):
    enter_local_task()
    return InlineGrid(foreign_app(**kwargs), clients)


def flat(client):
    """The update of a client as a row holds it."""
    return np.concatenate([own_update(client, name).reshape(-1) for name in SHAPES])

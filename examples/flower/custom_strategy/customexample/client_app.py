"""The client: least squares with NumPy, in double precision. Two lines put its updates under masks."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim import answer_secure_aggregation, secure_mod  # secure: 1

FEATURES = 40

app = answer_secure_aggregation(ClientApp(mods=[secure_mod]))  # secure: 2


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Ten steps of gradient descent."""
    rng = np.random.default_rng(context.node_config["partition-id"])
    x = rng.standard_normal((30, FEATURES))
    y = x @ rng.standard_normal(FEATURES)
    (weights,) = msg.content["arrays"].to_numpy_ndarrays()
    for _ in range(10):
        weights = weights - msg.content["config"]["lr"] * x.T @ (x @ weights - y) / len(x)
    metrics = MetricRecord({"loss": float(np.mean((x @ weights - y) ** 2)), "num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return Message(content=content, reply_to=msg)

"""The client: logistic regression of scikit-learn on a part of a table. Two lines mask its updates."""

import warnings

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedsim import answer_secure_aggregation, secure_mod  # secure: 1

app = answer_secure_aggregation(ClientApp(mods=[secure_mod]))  # secure: 2


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Some iterations from the model that was sent."""
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    part = slice(context.node_config["partition-id"], None, context.node_config["num-partitions"])
    x, y = x[part], y[part]
    model = LogisticRegression(max_iter=3, warm_start=True)
    model.classes_ = np.array([0, 1])
    model.coef_, model.intercept_ = msg.content["arrays"].to_numpy_ndarrays()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # three iterations are few on purpose
        model.fit(x, y)
    metrics = MetricRecord({"accuracy": float(model.score(x, y)), "num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord([model.coef_, model.intercept_]), "metrics": metrics})
    return Message(content=content, reply_to=msg)

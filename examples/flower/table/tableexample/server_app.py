"""The server. The lines of the tap and of secure sums are marked."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedsim import SecureAggregation, Tap  # tap: 1, secure: 3

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds."""
    config = context.run_config
    arrays = ArrayRecord([np.zeros((1, 30)), np.zeros(1)])
    strategy = FedAvg(fraction_train=config["fraction-train"], fraction_evaluate=0.0)
    out = config["audit-log"]  # tap: 2
    strategy = Tap(strategy, out=out, window=4, record="model", weighted_by="num-examples")  # tap: 3
    strategy = SecureAggregation(strategy, metrics=["accuracy"], clip=1000.0)  # secure: 4
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=config["num-server-rounds"])
    print(result.train_metrics_clientapp)

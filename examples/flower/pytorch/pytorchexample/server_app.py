"""The server. The lines of the tap and of secure sums are marked."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedsim import SecureAggregation, Tap  # tap: 1, secure: 3
from pytorchexample.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds."""
    config = context.run_config
    arrays = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_train=config["fraction-train"])
    out = config["audit-log"]  # tap: 2
    strategy = Tap(strategy, out=out, window=4, weighted_by="num-examples")  # tap: 3
    strategy = SecureAggregation(strategy, metrics=["train_loss"], evaluate_metrics=["eval_acc"])  # secure: 4
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=config["num-server-rounds"])
    print(result.evaluate_metrics_clientapp)

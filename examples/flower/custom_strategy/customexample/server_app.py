"""The server. Its strategy halves the learning rate, has a `start()` of its own and remembers the best round.

The lines of the tap and of secure sums are marked.
"""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from customexample.client_app import FEATURES
from fedsim import SecureAggregation, Tap  # tap: 1, secure: 3

app = ServerApp()


class CustomFedAvg(FedAvg):
    """FedAvg whose learning rate falls, and which remembers the best round."""

    def configure_train(self, server_round, arrays, config, grid):
        """Halve the learning rate every 8 rounds."""
        if server_round % 8 == 0:
            config["lr"] /= 2
        return super().configure_train(server_round, arrays, config, grid)

    def set_save_path(self, path):
        """Where the best model would be saved."""
        self.save_path = path

    def start(self, grid, initial_arrays, num_rounds, lr):
        """A loop of its own, without evaluation."""
        arrays, config, self.best = initial_arrays, ConfigRecord({"lr": lr}), (0, float("inf"))
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, config, grid)
            arrays, metrics = self.aggregate_train(number, grid.send_and_receive(messages))
            if metrics and metrics["loss"] < self.best[1]:  # a round in which too many fail has no metrics
                self.best = number, metrics["loss"]
        return arrays


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds."""
    config = context.run_config
    strategy = CustomFedAvg(fraction_train=config["fraction-train"])
    out = config["audit-log"]  # tap: 2
    strategy = Tap(strategy, out=out, window=4)  # tap: 3
    strategy = SecureAggregation(strategy, weighted_by=None, metrics=["loss"])  # secure: 4
    strategy.set_save_path("best.npz")
    strategy.start(grid, ArrayRecord([np.zeros(FEATURES)]), config["num-server-rounds"], lr=0.01)
    print("best round and loss:", strategy.best)

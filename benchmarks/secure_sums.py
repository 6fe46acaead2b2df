"""Secure sums in anybody's app against plain replies: error, CPU time and dropouts, for three strategies.

    python -m benchmarks.secure_sums [--seed 1] [--rounds 24] [--hidden 32 2000]

Sixteen clients train a small network on tables in NumPy (two epochs, 60 to 210 examples). Everything runs in
one process. The same training runs twice: with plain replies, and behind `SecureAggregation`. Cohorts and
failures are the same. `error` is the largest difference of an entry of the last models, over the largest
change of an entry since the first; it stands only where no round was void, because a void round keeps the
model. `metric` is the largest difference of a metric in a round. `plain` and `secure` are CPU ms per client
and round, training included, after a first round as a warm-up.
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy
from numpy.typing import NDArray

from benchmarks.tap import CLIENTS, initial, table_app
from fedsim import SecureAggregation, answer_secure_aggregation, secure_mod
from fedsim.flower import enter_local_task
from fedsim.grids.inline import InlineGrid

METRIC = "bias"


class Halfway(FedAvg):
    """A strategy as users write them: it draws its own sample, and goes half a step towards the mean."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Three clients in four, in turn."""
        nodes = [node for place, node in enumerate(sorted(grid.get_node_ids())) if (place + server_round) % 4]
        self.before = arrays
        record = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})
        return [Message(record, node, "train") for node in nodes]

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Half a step."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            for name, array in self.before.items():
                arrays[name] = type(array)((array.numpy() + arrays[name].numpy()) / 2)
        return arrays, metrics


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: FedAvg(fraction_evaluate=0.0),
    "FedAdam": lambda: FedAdam(fraction_evaluate=0.0, eta=0.01),
    "own": lambda: Halfway(fraction_evaluate=0.0),
}


def flat(arrays: ArrayRecord) -> NDArray[np.float64]:
    return np.concatenate([arrays[name].numpy().astype(np.float64).reshape(-1) for name in sorted(arrays)])


def trained(
    strategy: Strategy, seed: int, rounds: int, hidden: int, failing: float, *, secure: bool
) -> tuple[NDArray[np.float64], dict[int, float], float]:
    """The last model, the metric of every round, and CPU ms per client and round."""
    app = table_app(seed, failing=failing, mods=[secure_mod] if secure else [])
    if secure:
        answer_secure_aggregation(app)
    grid = InlineGrid(app, CLIENTS)
    random.seed(seed)
    began: list[float] = []

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        began.append(time.process_time())

    result = strategy.start(grid, initial(seed, hidden=hidden), num_rounds=rounds, evaluate_fn=after_round)
    spent = (began[-1] - began[1]) / (rounds - 1) / CLIENTS
    metrics = {number: float(each[METRIC]) for number, each in result.train_metrics_clientapp.items()}  # type: ignore[arg-type]
    return flat(result.arrays), metrics, 1e3 * spent


def compare(seed: int, rounds: int, hidden: int) -> None:
    for name, make in STRATEGIES.items():
        for failing in (0.0, 0.1, 0.3):
            plain, plain_metrics, plain_ms = trained(make(), seed, rounds, hidden, failing, secure=False)
            strategy = SecureAggregation(make(), metrics=[METRIC])
            secure, metrics, secure_ms = trained(strategy, seed, rounds, hidden, failing, secure=True)
            void = rounds - len(metrics)
            start = flat(initial(seed, hidden=hidden))
            error = np.abs(secure - plain).max() / np.abs(plain - start).max()
            differences = [abs(value - plain_metrics[number]) for number, value in metrics.items()]
            figures = f"{error:8.0e} {max(differences):8.0e}" if not void else f"{'–':>8} {'–':>8}"
            print(
                f"{name:8} {len(plain):8,d} {failing:6.0%} {void:5d} {figures} "
                f"{plain_ms:7.1f} {secure_ms:7.1f} {secure_ms / plain_ms:6.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--hidden", type=int, nargs="+", default=[32, 2000], help="width of the network")
    options = parser.parse_args()
    enter_local_task()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    print(
        f"{'strategy':8} {'entries':>8} {'fail':>6} {'void':>5} {'error':>8} {'metric':>8} "
        f"{'plain':>7} {'secure':>7} {'ratio':>6}"
    )
    for hidden in options.hidden:
        compare(options.seed, options.rounds, hidden)


if __name__ == "__main__":
    main()

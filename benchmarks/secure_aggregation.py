"""Measure the cost of masks: CPU ms per client and round, beside `ideal` and beside Flower's SecAgg+.

    python -m benchmarks.secure_aggregation [--cohorts 10 40 80 200 1000] [--dim 61706] [--flower-up-to 80]
    python -m benchmarks.secure_aggregation --training [--cohorts 10 30 80] [--hidden 37000]

Devices answer with vectors that are drawn beforehand, so no training is in the figures. The default length
is that of LeNet. `ideal` adds the vectors up. `masked` is the whole protocol. `lost` is the same with a
third of the devices gone after they have agreed on masks, or a quarter in cohorts above 300. `SecAgg+` is
Flower's own client mod and workflow on the same vectors, with as many neighbours and a threshold of two
thirds; it signs and checks nothing, and takes minutes for more than 80 devices. `device` and `server` are
CPU time of one round divided by the size of the cohort, after a first round as a warm-up. Timings vary with
the load of the machine.

With `--training` devices train as in a scenario: LeNet with a wide last layer, about 5 million parameters,
one epoch on 64 pictures in batches of 16. The last figure is the time with masks over that without.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from numpy.typing import NDArray

from fedsim.flower import WEIGHT, client_number, enter_local_task, vector_record
from fedsim.grids.inline import InlineGrid
from fedsim.trusted.failures import Failure, Failures
from fedsim.trusted.masking import Masked
from fedsim.trusted.masking.neighbours import NEIGHBOURS
from fedsim.trusted.rounds import Invitation, RoundSum, SummationSettings
from fedsim.trusted.summation import Ideal
from scenarios.run.apps import client_app, trainer
from scenarios.run.scenario import Scenario
from scenarios.run.world import World

BITS = 22
"""Of an entry: a sum of 1,000 entries fits in 32 bits."""


class TimedGrid(InlineGrid):
    """Measures the CPU time inside the devices."""

    device_s = 0.0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver, with the clock running."""
        messages = list(messages)
        began = time.process_time()
        replies = super().send_and_receive(messages, timeout=timeout)
        self.device_s += time.process_time() - began
        return replies


class FirstLost(Failures):
    """The first `gone` clients train and do not deliver, in every round."""

    gone: int

    def draw(self, seed: int, client: int, round_index: int) -> Failure | None:
        """The fate of a client."""
        return Failure.LOST if client < self.gone else None


def summing(
    settings: SummationSettings, vectors: list[NDArray[np.float32]], gone: int = 0
) -> list[tuple[float, float]]:
    """Run two rounds of our own; CPU seconds in the devices and in the server, for each."""
    app = ClientApp(mods=[*FirstLost(gone=gone).device_mods(seed=0), *settings.device_mods()])
    settings.teach(app)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays, metrics = vector_record(vectors[client_number(context)]), MetricRecord({WEIGHT: 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    sums, times = rounds(settings, TimedGrid(app, len(vectors)), np.zeros_like(vectors[0]))
    expected = np.sum(vectors[gone:], axis=0, dtype=np.float64)
    for summed in sums:
        if len(summed.members) != len(vectors) - gone or np.abs(summed.total - expected).max() > 1e-3:
            raise RuntimeError("a wrong sum, or a void round")
    return times


def rounds(
    settings: SummationSettings, grid: TimedGrid, model: NDArray[np.float32]
) -> tuple[list[RoundSum], list[tuple[float, float]]]:
    """Two rounds with everybody: their sums, and CPU seconds in the devices and in the server."""
    nodes = tuple(grid.get_node_ids())
    summation = settings.enrol(grid, nodes)
    sums, times = [], []
    for server_round in (1, 2):
        config = ConfigRecord({"server-round": server_round})
        content = RecordDict({"arrays": vector_record(model), "config": config})
        invitation = Invitation(grid, server_round, Message(content, nodes[0], "train"), nodes)
        grid.device_s, began = 0.0, time.process_time()
        opened = summation.open_round(invitation)
        sums.append(opened.close(grid.send_and_receive(opened.messages)))
        times.append((grid.device_s, time.process_time() - began - grid.device_s))
    return sums, times


def training(settings: SummationSettings, cohort: int, hidden: int) -> tuple[int, float]:
    """The number of parameters, and CPU ms per client of a round with training."""
    scenario = Scenario.model_validate(
        {
            "title": "Cost of masks",
            "data": {"name": "synthetic", "train_images": 64 * cohort, "test_images": 10},
            "model": {"name": "lenet", "hidden": hidden},
            "clients": {"dataset_size": 64, "batch_size": 16},
            "federation": {
                "clients": cohort,
                "rounds": 1,
                "participation": {"name": "cohort", "size": cohort},
                "aggregation": settings,
            },
        }
    )
    world = World.prepare(scenario)
    grid = TimedGrid(client_app(world, trainer(world)), cohort)
    _, times = rounds(settings, grid, world.model.read())
    return world.model.dim, 1e3 * sum(times[-1]) / cohort


class EveryNode:
    """The strategy that Flower's workflow talks to: it asks all nodes, and keeps the `mean`."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = list(nodes)
        self.mean: list[NDArray[Any]] = []

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        """Ask every node."""
        return [(SimpleNamespace(node_id=node), FitIns(parameters, {})) for node in self._nodes]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        """Check that all arrived; every result holds the mean."""
        if len(results) != len(self._nodes) or failures:
            raise RuntimeError(f"SecAgg+ failed: {failures}")
        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def flower(
    vectors: list[NDArray[np.float32]], weights: list[int] | None = None
) -> tuple[list[tuple[float, float]], NDArray[Any]]:
    """The same with Flower's SecAgg+; also the mean of the vectors, weighted by `weights`."""
    app = ClientApp(mods=[secaggplus_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        parameters = ndarrays_to_parameters([vectors[client_number(context)]])
        weight = weights[client_number(context)] if weights else 1
        result = FitRes(Status(Code.OK, ""), parameters, weight, {})
        return Message(recorddict_compat.fitres_to_recorddict(result, False), reply_to=message)

    grid = TimedGrid(app, len(vectors))
    everybody = len(vectors) <= NEIGHBOURS + 1
    workflow = SecAggPlusWorkflow(1.0 if everybody else NEIGHBOURS + 1, 2 / 3)
    times, strategy = [], EveryNode(grid.get_node_ids())
    for server_round in (1, 2):
        state = RecordDict({MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: server_round})})
        state[MAIN_PARAMS_RECORD] = recorddict_compat.parameters_to_arrayrecord(
            ndarrays_to_parameters([np.zeros_like(vectors[0])]), keep_input=True
        )
        context = LegacyContext(
            Context(1, 1, {}, state, {}),
            strategy=strategy,  # type: ignore[arg-type]
        )
        grid.device_s, began = 0.0, time.process_time()
        workflow(grid, context)
        times.append((grid.device_s, time.process_time() - began - grid.device_s))
    return times, strategy.mean[0]


def compare_training(cohorts: list[int], hidden: int) -> None:
    print(f"{'cohort':>6} {'dim':>9} {'ideal':>8} {'masked':>8} {'ratio':>6}   CPU ms per client")
    for cohort in cohorts:
        dim, ideal = training(Ideal(), cohort, hidden)
        _, masked = training(Masked(bits=BITS), cohort, hidden)
        print(f"{cohort:6d} {dim:9d} {ideal:8.1f} {masked:8.1f} {masked / ideal:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cohorts", type=int, nargs="+", default=[10, 40, 80, 200, 1000])
    parser.add_argument("--training", action="store_true", help="with training, and nothing but its cost")
    parser.add_argument("--hidden", type=int, default=37_000, help="width of LeNet's last layer in training")
    parser.add_argument("--dim", type=int, default=61_706, help="entries of an update")
    parser.add_argument("--flower-up-to", type=int, default=80, help="largest cohort for SecAgg+")
    options = parser.parse_args()
    enter_local_task()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    if options.training:
        compare_training(options.cohorts, options.hidden)
        return
    print(f"{'cohort':>6} {'dim':>9}  {'':12} {'device':>8} {'server':>8} {'in all':>8}   CPU ms per client")
    for cohort in options.cohorts:
        rng = np.random.default_rng(0)
        vectors = [rng.normal(scale=0.01, size=options.dim).astype(np.float32) for _ in range(cohort)]
        masked = Masked(bits=BITS)
        # Above 300 devices the promise is for a quarter (see neighbours.py).
        gone = cohort - masked.needed(cohort) if cohort <= 300 else cohort // 4
        kinds = {
            "ideal": lambda: summing(Ideal(), vectors),  # noqa: B023
            "masked": lambda: summing(masked, vectors),  # noqa: B023
            f"{gone} lost": lambda: summing(masked, vectors, gone),  # noqa: B023
        }
        if cohort <= options.flower_up_to:
            kinds["SecAgg+"] = lambda: flower(vectors)[0]  # noqa: B023
        for name, measure in kinds.items():
            device, server = (1e3 * seconds / cohort for seconds in measure()[-1])
            print(
                f"{cohort:6d} {options.dim:9d}  {name:12} {device:8.1f} {server:8.1f} {device + server:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

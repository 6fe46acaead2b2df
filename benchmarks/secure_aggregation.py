"""What masks cost: CPU ms per client and round, masked beside ideal, in one run.

    python -m benchmarks.secure_aggregation [--cohorts 5 10 20] [--hidden 84] [--repeats 5]

Real devices train LeNet on 64 generated images (batches of 16, one epoch). Rounds of three kinds alternate:
ideal, masked, and masked with every fifth device on average lost after the masks were agreed. `device` is
the time inside the devices, training included; `server` is the rest, per client of the cohort; medians over
the repeats. `ratio` is the whole round's time over the ideal round's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from fedsim.engines.inline import InlineGrid
from fedsim.federation import ClientSettings, FederationSettings
from fedsim.flower import enter_local_task, vector_record
from fedsim.models import Lenet
from fedsim.trusted.failures import Failures
from fedsim.trusted.masking import Masked
from fedsim.trusted.rounds import Invitation
from fedsim.trusted.schedule import Cohort
from fedsim.trusted.summation import Aggregation, Ideal
from scenarios.run.apps import client_app, trainer
from scenarios.run.scenario import Scenario
from scenarios.run.world import World

KINDS: dict[str, tuple[Aggregation, Failures]] = {
    "ideal": (Ideal(), Failures()),
    "masked": (Masked(), Failures()),
    "masked, a fifth lost": (Masked(), Failures(lost=0.2)),
}


class TimedGrid(InlineGrid):
    """Knows how much CPU time was spent inside the devices."""

    device_s = 0.0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver, with the clock running."""
        began = time.process_time()
        replies = super().send_and_receive(messages, timeout=timeout)
        self.device_s += time.process_time() - began
        return replies


@dataclass(frozen=True)
class Bench:
    """A federation whose rounds can be run one at a time."""

    world: World
    grid: TimedGrid

    @classmethod
    def of(cls, aggregation: Aggregation, failures: Failures, *, cohort: int, hidden: int) -> Bench:
        """Everybody takes part in every round."""
        scenario = Scenario.model_validate(
            {
                "title": "Benchmark",
                "data": {"name": "synthetic", "train_images": 64 * cohort, "test_images": 10},
                "model": Lenet(hidden=hidden),
                "clients": ClientSettings(dataset_size=64, batch_size=16, failures=failures),
                "federation": FederationSettings(
                    clients=cohort, rounds=1, participation=Cohort(size=cohort), aggregation=aggregation
                ),
            }
        )
        world = World.prepare(scenario)
        return cls(world, TimedGrid(client_app(world, trainer(world)), cohort))

    def round(self, server_round: int) -> tuple[float, float]:
        """CPU ms per client of one round: in the devices, and in the server."""
        arrays = vector_record(self.world.model.read())
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})
        nodes = tuple(self.grid.get_node_ids())
        invitation = Invitation(self.grid, server_round, Message(content, nodes[0], "train"), nodes)
        summation = self.world.scenario.federation.aggregation.enrol(self.grid, nodes)
        before, began = self.grid.device_s, time.process_time()
        summing = summation.open_round(invitation)
        summing.close(self.grid.send_and_receive(summing.messages))
        device, whole = self.grid.device_s - before, time.process_time() - began
        return 1e3 * device / len(nodes), 1e3 * (whole - device) / len(nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cohorts", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--hidden", type=int, default=84, help="LeNet's hidden layer")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    enter_local_task()
    print(f"{'cohort':>6} {'dim':>7}  {'':20} {'device':>8} {'server':>8} {'ratio':>6}")
    for cohort in options.cohorts:
        benches = {
            name: Bench.of(*kind, cohort=cohort, hidden=options.hidden) for name, kind in KINDS.items()
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in benches}
        for server_round in range(1, options.repeats + 2):
            for name, bench in benches.items():
                times[name].append(bench.round(server_round))
        # The first round of each pays for what is set up once.
        whole = {name: statistics.median(sum(t) for t in spent[1:]) for name, spent in times.items()}
        for name, spent in times.items():
            device, server = (statistics.median(column) for column in zip(*spent[1:], strict=True))
            print(
                f"{cohort:6d} {benches[name].world.model.dim:7d}  {name:20} "
                f"{device:8.1f} {server:8.1f} {whole[name] / whole['ideal']:6.2f}"
            )


if __name__ == "__main__":
    main()

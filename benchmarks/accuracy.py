"""Does the simulated federation learn as well as plain FedAvg? Prints the test accuracy of both.

    python -m benchmarks.accuracy DATA [--seeds 1 2 3] [--every 15] [--set KEY=VALUE]…

DATA is a copy of CIFAR-10 (torchvision's folder, or an .npz file). `fedsim` is the library scenario
`cifar10_honest`: Flower's FedAvg behind trusted aggregation, which learns from sums. `plain` is FedAvg as a
PyTorch loop: `torch.optim.SGD` on each client's images, then the mean of the trained models. Both have the
same images per client, the same cohorts and the same first model. Batches are drawn independently, so the
two runs differ as much as two seeds of the shuffling do.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedsim.server.hooks import RoundHook
from fedsim.training.local_training import evaluate
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.scenario import find_scenario, load_scenario
from scenarios.run.simulate import simulate
from scenarios.run.world import World

Curve = dict[int, float]
"""Round → test accuracy."""


def simulated(world: World, rounds: set[int]) -> Curve:
    """Train the scenario with fedsim."""
    measured = MeasureAccuracy(world, rounds)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", replace=False)
        # In one process, for a fair comparison of CPU seconds.
        simulate(world, directory, Inline(workers=1), hooks=[measured])
    return measured.curve


class MeasureAccuracy(RoundHook):
    """Measure the test accuracy of the server's model after some of the rounds."""

    def __init__(self, world: World, rounds: set[int]) -> None:
        self._world, self._rounds = world, rounds
        self.curve: Curve = {}

    def on_start(self, done: int, model: NDArray[np.float32]) -> None:
        """Measure the first model too."""
        self.after_round(done, model)

    def after_round(self, done: int, model: NDArray[np.float32]) -> None:
        """Add a point to the curve."""
        if done in self._rounds:
            self._world.model.load(model)
            self.curve[done] = test_accuracy(self._world, self._world.model.module)


def plain(world: World, rounds: set[int]) -> Curve:
    """Train the same federation with a plain loop that averages the trained models."""
    settings = world.scenario.clients
    task, train = world.data.task, world.data.train
    images, labels = task.as_inputs(train.inputs), task.as_targets(train.targets)
    model, local = (copy.deepcopy(world.model.module) for _ in range(2))
    shuffle = torch.Generator().manual_seed(world.scenario.seed)
    curve = {0: test_accuracy(world, model)} if 0 in rounds else {}
    for number, invited in enumerate(world.schedule, start=1):
        trained = []
        for client in invited.nonzero()[0]:
            mine = torch.from_numpy(world.owned[client])
            local.load_state_dict(model.state_dict())
            local.train()
            optimiser = torch.optim.SGD(local.parameters(), lr=settings.lr, momentum=settings.momentum)
            for _ in range(settings.local_epochs):
                shuffled = mine[torch.randperm(len(mine), generator=shuffle)]
                for batch in torch.split(shuffled, settings.batch_size):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(local(images[batch]), labels[batch]).backward()
                    optimiser.step()
            trained.append(copy.deepcopy(local.state_dict()))
        if trained:
            mean = {name: torch.stack([each[name] for each in trained]).mean(0) for name in trained[0]}
            model.load_state_dict(mean)
        if number in rounds:
            curve[number] = test_accuracy(world, model)
    return curve


def test_accuracy(world: World, model: nn.Module) -> float:
    """Return the accuracy of a model on the test images."""
    task, test = world.data.task, world.data.test
    return evaluate(task, model.eval(), task.as_inputs(test.inputs), task.as_targets(test.targets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--every", type=int, default=15, help="rounds between two measurements")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    options = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, list[Curve]] = {"fedsim": [], "plain": []}
    for seed in options.seeds:
        overrides = [f"data.path={options.data}", f"seed={seed}", *options.overrides]
        scenario = load_scenario(find_scenario("cifar10_honest"), overrides)
        last = scenario.federation.rounds
        rounds = {*range(0, last, options.every), last}
        if seed == options.seeds[0]:
            print(f"{'':14}" + "".join(f"{f'round {r}':>10}" for r in sorted(rounds)) + f"{'CPU s':>8}")
        for name, run in (("fedsim", simulated), ("plain", plain)):
            began = time.process_time()
            curves[name].append(run(World.prepare(scenario), rounds))
            spent = time.process_time() - began
            print(f"seed {seed} {name:7}" + _row(curves[name][-1]) + f"{spent:8.1f}", flush=True)
    for name, found in curves.items():
        print(f"mean {name:9}" + _row({r: statistics.mean(c[r] for c in found) for r in found[0]}))


def _row(curve: Curve) -> str:
    return "".join(f"{curve[r]:10.3f}" for r in sorted(curve))


if __name__ == "__main__":
    main()

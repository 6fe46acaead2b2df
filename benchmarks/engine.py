"""What does a round cost on each engine? CPU time of the whole process tree, relative to a plain loop.

    python -m benchmarks.engine [--models lenet mlp] [--epochs 1 4] [--kinds plain inline one alone ray]

100 clients, 10 in each round (`--cohort`), train on 64 generated 32×32 images each, in batches of 16.

    plain     a PyTorch loop without a federation, with one model, one optimiser and all images ready;
    inline    the default engine, with everything that a run writes;
    one       the same in one process, as the plain loop is: two processes at work slow each other down;
    alone     in one process, and without training clients together;
    ray       Flower's simulation engine.

Each kind has its own process tree. They take turns of a few rounds, so other load on the machine affects all
of them alike. `ratio` is the median over the turns of the CPU time relative to `plain` in the same turn.
`start-up` is the CPU time up to the end of the first round, less that of another round. `memory` is that of
all processes of the tree, with shared memory counted once, at the end of the turn where it is largest. Linux
only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.run.engines import Inline, Ray, Runtime, Serve

if TYPE_CHECKING:
    from scenarios.run.world import World

CLIENTS, IMAGES, BATCH, LR = 100, 64, 16, 0.01
KINDS = ("plain", "inline", "one", "alone", "ray")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """A model, its local epochs, the number of rounds and the number of processes."""

    model: str
    epochs: int
    rounds: int
    workers: int
    cohort: int

    def world(self) -> World:
        """Return the federation."""
        from scenarios.run.scenario import Scenario
        from scenarios.run.world import World

        content: dict[str, Any] = {
            "title": "Benchmark",
            "data": {"name": "synthetic", "train_images": CLIENTS * IMAGES, "test_images": 10},
            "model": {"name": self.model},
            "clients": {"dataset_size": IMAGES, "batch_size": BATCH, "local_epochs": self.epochs, "lr": LR},
            "federation": {
                "clients": CLIENTS,
                "rounds": self.rounds,
                "participation": {"name": "cohort", "size": self.cohort},
            },
        }
        return World.prepare(Scenario.model_validate(content))


def plain_loop(case: Case) -> Iterator[None]:
    """Run one round per step: every client of the cohort trains from the model, and updates are added."""
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(1)
    world = case.world()
    task, train = world.data.task, world.data.train
    images, labels = task.as_inputs(train.inputs), task.as_targets(train.targets)
    owned = [torch.from_numpy(positions) for positions in world.owned]
    theirs = [(images[positions], labels[positions]) for positions in owned]
    model = world.scenario.model.build(task)
    parameters: list[torch.Tensor] = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    optimiser = torch.optim.SGD(parameters, lr=LR)
    generator = torch.Generator().manual_seed(0)
    for cohort in world.schedule:
        total = [torch.zeros_like(p) for p in start]
        for client in np.flatnonzero(cohort):
            x, y = theirs[client]
            with torch.no_grad():
                torch._foreach_copy_(parameters, start)
            for _ in range(case.epochs):
                for batch in torch.randperm(len(y), generator=generator).split(BATCH):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
                    optimiser.step()
            with torch.no_grad():
                torch._foreach_add_(total, parameters)
                torch._foreach_sub_(total, start)
        yield


class Alone(Runtime):
    """The inline engine without rounds computed ahead: each device trains when it is called."""

    name = "alone"

    def run(self, serve: Serve, world: World) -> None:
        """Serve devices that live in this process."""
        from fedsim.flower import enter_local_task
        from fedsim.grids.inline import InlineGrid
        from scenarios.run.apps import client_app, trainer

        enter_local_task()
        serve(InlineGrid(client_app(world, trainer(world)), world.scenario.federation.clients), None)


def contestant(kind: str, case: Case) -> None:
    """Run a round for each line that arrives, and write a line after it."""
    lines, out = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def after_round(done: int, total: int = 0) -> None:
        if done:
            print("done", file=out, flush=True)
        if done < case.rounds:
            lines.readline()

    if kind == "plain":
        after_round(0)
        for number, _ in enumerate(plain_loop(case)):
            after_round(number + 1)
        return
    from scenarios.run.directory import RunDirectory
    from scenarios.run.simulate import simulate

    runtimes: dict[str, Runtime] = {
        "inline": Inline(case.workers or None),
        "one": Inline(1),
        "alone": Alone(),
        "ray": Ray(),
    }
    with tempfile.TemporaryDirectory(prefix="fedsim-") as folder:
        simulate(
            case.world(),
            RunDirectory.create(Path(folder) / "run", replace=False),
            runtimes[kind],
            after_round,
        )


class Contestant:
    """The parent's handle on a process that runs `contestant`."""

    def __init__(self, kind: str, case: Case) -> None:
        arguments = [
            kind,
            case.model,
            str(case.epochs),
            str(case.rounds),
            str(case.workers),
            str(case.cohort),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine", "--contestant", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._rounds_left = case.rounds
        self.memory = 0.0

    def turn(self, rounds: int) -> tuple[float, float]:
        """Run the next rounds; return their CPU and wall seconds."""
        before, began = self.cpu_s(), time.perf_counter()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for _ in range(rounds):
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
            if not self._process.stdout.readline():
                raise RuntimeError("a contestant failed: run it by hand with --contestant to see why")
        spent = self.cpu_s() - before, time.perf_counter() - began
        self.memory = max(self.memory, sum(map(_memory, self._tree())))
        return spent

    def cpu_s(self) -> float:
        """Return the CPU seconds of the tree so far, including processes that have ended."""
        return sum(map(_cpu_s, self._tree()))

    def close(self) -> None:
        """End the process without waiting for the rest of its rounds."""
        self._process.kill()
        self._process.wait()

    def _tree(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and (stat := _stat(int(folder.name))):
                children.setdefault(int(stat[1]), []).append(int(folder.name))
        tree = [self._process.pid]
        for process in tree:
            tree += children.get(process, [])
        return tree


def _stat(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none if the process has just ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _cpu_s(process: int) -> float:
    stat = _stat(process)
    return sum(map(int, stat[11:15])) / TICKS_PER_S if stat else 0.0


def _memory(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def compare(case: Case, kinds: list[str], *, turns: int, rounds: int) -> None:
    """Print a table for one case."""
    contestants = {kind: Contestant(kind, case) for kind in kinds}
    first = {kind: (each.turn(1), each.cpu_s())[1] for kind, each in contestants.items()}
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, each in contestants.items():
            spent[kind].append(each.turn(rounds))
    for each in contestants.values():
        each.close()
    for kind, turn in spent.items():
        cpu = [seconds / rounds for seconds, _ in turn]
        ratio = statistics.median(
            mine / plain for (mine, _), (plain, _) in zip(turn, spent["plain"], strict=True)
        )
        wall = statistics.median(seconds / rounds for _, seconds in turn)
        print(
            f"{case.model:8} {case.epochs:6d} {kind:8} {ratio:6.2f} {1e3 * statistics.median(cpu):9.1f} "
            f"{1e3 * wall:9.1f} {first[kind] - statistics.median(cpu):9.1f} {contestants[kind].memory:9.0f}",
            flush=True,
        )


def main() -> None:
    if sys.argv[1:2] == ["--contestant"]:
        kind, model, *numbers = sys.argv[2:]
        contestant(kind, Case(model, *map(int, numbers)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["lenet", "mlp", "cnn", "resnet"])
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=5, help="rounds in a turn")
    parser.add_argument("--workers", type=int, default=0, help="processes of `inline`; one per core if 0")
    parser.add_argument("--cohort", type=int, default=10, help="clients in a round")
    options = parser.parse_args()
    kinds = ["plain", *(kind for kind in options.kinds if kind != "plain")]
    print(
        f"{'model':8} {'epochs':>6} {'kind':8} {'ratio':>6} {'CPU ms':>9} {'wall ms':>9} "
        f"{'start-up s':>9} {'memory MB':>9}"
    )
    for model in options.models:
        for epochs in options.epochs:
            # One round more than will be run: nobody ends before the last turn.
            case = Case(model, epochs, 2 + options.turns * options.rounds, options.workers, options.cohort)
            compare(case, kinds, turns=options.turns, rounds=options.rounds)


if __name__ == "__main__":
    main()

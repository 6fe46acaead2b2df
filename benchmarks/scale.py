"""What does a large federation cost? CPU time and memory of the rounds alone, by the number of clients.

    python -m benchmarks.scale [--clients 1000 10000] [--cohort 100] [--rounds 200] [--engine inline ray]

LeNet on generated images, five per client, in one batch. A client is invited at most in the rounds that are
run. Every case has its own process. `CPU s` is that of its tree, without start-up, which is everything before
the first round. `memory` is the largest resident memory of the process itself, before the first round and
after the last one; `trained` is the number of clients that took part.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGES = 5


def measured(engine: str, clients: int, cohort: int, rounds: int) -> None:
    """Run one case in this process and print its line."""
    from fedsim.trusted.truth import Truth
    from scenarios.run.directory import RunDirectory
    from scenarios.run.engines import Inline, Ray
    from scenarios.run.scenario import Scenario
    from scenarios.run.simulate import simulate
    from scenarios.run.world import World

    world = World.prepare(
        Scenario.model_validate(
            {
                "title": "Scale",
                "data": {"name": "synthetic", "train_images": clients * IMAGES, "test_images": 10},
                "model": {"name": "lenet"},
                "clients": {"dataset_size": IMAGES, "batch_size": IMAGES, "lr": 0.01},
                "federation": {
                    "clients": clients,
                    "rounds": rounds,
                    "participation": {"name": "cohort", "size": cohort},
                    "evaluate_every": rounds,
                },
            }
        )
    )
    marks: list[tuple[float, float, float]] = []

    def after_round(done: int, total: int = 0) -> None:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = sum(each.ru_utime + each.ru_stime for each in used)
        marks.append((cpu, time.perf_counter(), used[0].ru_maxrss / 1024))

    with tempfile.TemporaryDirectory(prefix="fedsim-") as folder:
        directory = RunDirectory.create(Path(folder) / "run", replace=False)
        simulate(world, directory, Inline(1) if engine == "inline" else Ray(), after_round)
        after_round(rounds + 1)
        trained = int(Truth.load(directory.truth).participation.any(axis=0).sum())
    (cpu, wall, before), (cpu_after, wall_after, after), (_, _, end) = marks[0], marks[rounds], marks[-1]
    print(
        f"{engine:7} {clients:8d} {cohort:7d} {rounds:7d} {trained:8d} {cpu:9.1f} {cpu_after - cpu:7.1f} "
        f"{wall_after - wall:7.1f} {before:10.0f} {after:10.0f} {end:10.0f}",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:2] == ["--case"]:
        measured(sys.argv[2], *map(int, sys.argv[3:]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--engine", nargs="+", choices=("inline", "ray"), default=["inline"])
    options = parser.parse_args()
    print(
        f"{'engine':7} {'clients':>8} {'cohort':>7} {'rounds':>7} {'trained':>8} {'start s':>9} {'CPU s':>7} "
        f"{'wall s':>7} {'MB before':>10} {'MB rounds':>10} {'MB truth':>10}",
        flush=True,
    )
    for engine in options.engine:
        for clients in options.clients:
            case = [engine, clients, options.cohort, options.rounds]
            command = [sys.executable, "-m", "benchmarks.scale", "--case", *map(str, case)]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()

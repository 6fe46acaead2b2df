"""What does the attack still get under each defence, and what does the defence cost?

    python -m benchmarks.defences batches | counts | updates

Runs a federation of the quickstart's size with a fixed model, a LeNet. Each table is over three seeds. A
federation trains once per seed and setting. Policies for counts are applied to the same devices' answers.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from scenarios.run.directory import RunDirectory
from scenarios.run.result import Result
from scenarios.run.runner import attack_run, honest_part, publish, run_scenario
from scenarios.run.scenario import find_scenario, load_scenario
from scenarios.run.world import World

SEEDS = (9001, 9002, 9003)
FEDERATION = (
    *("federation.rounds=96", "federation.server_model=fixed", "analytics.window=8"),
    *("clients.dataset_size=32", "clients.lr=0.01"),
)
LENET = ("model={ name = 'lenet' }", "clients.batch_size=16", "attack.inference=[]")
"""Batches are smaller than a client's data, so its updates vary from round to round, as real ones do."""
BATCHES = "federation.participation={ name = 'batches', batch_size = 4, per_round = 1 }"


def run(folder: Path, *overrides: str) -> tuple[RunDirectory, Result]:
    directory = RunDirectory.create(folder, replace=True)
    world = World.prepare(load_scenario(find_scenario("quickstart"), (*FEDERATION, *LENET, *overrides)))
    return directory, run_scenario(world, directory)


def row(name: str, results: Sequence[Result]) -> None:
    def mean(figure: Callable[[Result], float | None]) -> str:
        values = [figure(result) for result in results]
        return f"{np.mean([np.nan if value is None else value for value in values]):.2f}"

    cells = (
        mean(lambda r: r.disaggregation.exact_fraction),
        mean(lambda r: r.disaggregation.exact_up_to_names),
        mean(lambda r: r.disaggregation.singled_out_fraction),
        mean(lambda r: r.disaggregation.advantage),
        mean(lambda r: r.disaggregation.update_cosine),
        mean(lambda r: r.disaggregation.baselines.aggregate_update_cosine),
        mean(lambda r: r.analytics.count_error),
        mean(lambda r: r.training.test_accuracy),
    )
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def header() -> None:
    names = (
        "setting",
        "exact",
        "names aside",
        "singled out",
        "advantage",
        "cosine",
        "no attack",
        "count error",
    )
    print(f"| {' | '.join(names)} | accuracy |")
    print("|" + "---|" * 9)


def batches(folder: Path) -> None:
    header()
    settings = {"batches of 4": BATCHES, "random": "federation.participation={ name = 'cohort', size = 4 }"}
    for server, rounds, name in (
        *(("fixed", rounds, "batches of 4") for rounds in (24, 96, 384)),
        ("fixed", 96, "random"),
        ("updated", 96, "batches of 4"),
        ("updated", 96, "random"),
    ):
        # With full batches and a fixed model updates never change: the easiest case for the attack.
        overrides = (
            f"federation.rounds={rounds}",
            f"federation.server_model={server}",
            settings[name],
            "clients.batch_size=32",
        )
        row(f"{name}, {server}, {rounds}", [run(folder, f"seed={seed}", *overrides)[1] for seed in SEEDS])


def counts(folder: Path) -> None:
    trained = [run(folder / str(seed), f"seed={seed}")[0] for seed in SEEDS]
    header()
    for release in (
        "",
        "{ name = 'private', epsilon = 10 }",
        "{ name = 'private', epsilon = 1 }",
        "{ name = 'private', epsilon = 0.1 }",
        "{ name = 'gaussian', sd = 1 }",
        "{ name = 'rounding', multiple = 4 }",
        "{ name = 'threshold', limit = 3 }",
        "{ name = 'drop', fraction = 0.5 }",
        "{ name = 'coarsening', counts = 12 }",
    ):
        results = []
        for directory in trained:
            scenario = load_scenario(directory.scenario, [f"analytics.release=[{release}]"])
            honest = honest_part(directory).published(publish(scenario, directory))
            results.append(attack_run(scenario, directory, honest))
        row(release or "exact", results)
    off = [run(folder / f"{seed} off", f"seed={seed}", "analytics.collection=off")[1] for seed in SEEDS]
    row("off", off)


def updates(folder: Path) -> None:
    header()
    for defence in (
        "",
        "{ name = 'clipping', norm = 0.01 }",
        "{ name = 'top_k', fraction = 0.05 }",
        "{ name = 'quantisation', bits = 4 }",
        "{ name = 'noise', sd = 0.0003 }",
        "{ name = 'noise', sd = 0.001 }",
        "{ name = 'local_dp', norm = 0.02, epsilon = 10 }",
        "{ name = 'central_dp', norm = 0.02, noise_multiplier = 1 }",
        "{ name = 'central_dp', norm = 0.02, noise_multiplier = 1, noise_on = 'model' }",
    ):
        results = [run(folder, f"seed={seed}", f"defences=[{defence}]")[1] for seed in SEEDS]
        row(defence or "none", results)
    row("data_fraction 0.5", [run(folder, f"seed={s}", "clients.data_fraction=0.5")[1] for s in SEEDS])


def main() -> None:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        {"batches": batches, "counts": counts, "updates": updates}[sys.argv[1]](Path(folder) / "run")
    print(f"{time.process_time() - began:.0f} s CPU", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Do forecasts hold? Prints the fraction of exposed clients in full simulations, beside the forecast.

    python -m benchmarks.forecast [--seeds 3] [--first-seed 1]

Each setting is forecast, then simulated to three numbers of rounds: as many as clients, and those at which
the forecast expects half of the clients and nearly all (95 %) to be exposed. Devices train a small network on
generated images, with full batches and a fixed model: there is no noise but rounding. The attack is `auto`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from attacks.disaggregation import Recovery
from fedsim.trusted.truth import Truth
from scenarios.forecast.forecast import Setting, forecast
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import Scenario
from scenarios.run.world import World

SETTINGS = [(12, 0.3, 4), (16, 0.2, 8), (20, 0.3, 10), (24, 0.2, 8), (24, 0.1, 10), (32, 0.15, 16)]
"""Clients, rate, window."""


def simulated(setting: Setting, rounds: int, seed: int) -> float:
    scenario = Scenario.model_validate(
        {
            "title": "Forecast",
            "seed": seed,
            "data": {"name": "synthetic", "train_images": 16 * setting.clients, "test_images": 10},
            "model": {"name": "mlp", "hidden": 8},
            "clients": {"dataset_size": 16, "batch_size": 16},
            "federation": {
                "clients": setting.clients,
                "rounds": rounds,
                "participation": {"name": "bernoulli", "rate": setting.rate},
            },
            "analytics": {"window": setting.window},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", replace=False)
        run_scenario(World.prepare(scenario), directory)
        truth, recovery = Truth.load(directory.truth), Recovery.load(directory.recovery)
        right = (recovery.participation == truth.participation).all(axis=0)
        stands = recovery.outcome != "unresolved"
        return float((right & stands & truth.participation.any(axis=0)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    print("clients rate window | rounds: forecast, measured (mean of seeds)")
    for clients, rate, window in SETTINGS:
        setting = Setting(clients=clients, rate=rate, window=window)
        found = forecast(setting)
        line = f"{clients:7d} {rate:4g} {window:6d} |"
        counted = setting.exposed_by_counts(clients)
        for rounds, expected in ((clients, counted), (found.half, 0.5), (found.nearly_all, 0.95)):
            if rounds is None:
                line += f"   – : {expected:.2f}, –"
                continue
            measured = np.mean([simulated(setting, rounds, seed) for seed in seeds])
            line += f"  {rounds:3d}: {expected:.2f}, {measured:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()

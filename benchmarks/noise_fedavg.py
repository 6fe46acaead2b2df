"""Recovery from the sums of real FedAvg updates: the hard cells of the paper's tables 1 and S1.

    python -m benchmarks.noise_fedavg DATA [--cells f64 f128 m4 m8] [--seeds 1 2] [--keep FOLDER]

DATA is a copy of CIFAR-10 (torchvision's folder, or an .npz file). Each cell is the library scenario
`cifar10_fedavg` (100 clients × 200 rounds, rate .1, counts per 10 rounds) with other settings. Trainings are
kept in `--keep` and not repeated. The output shows, beside the paper's fraction: the columns exactly right
with `auto`; the mean confidence, which should be the same; the chance that a random column with the counts
is right; and the confidence of wrong columns, largest first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.view import AttackerView
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.runner import publish, train_run
from scenarios.run.scenario import find_scenario, load_scenario
from scenarios.run.world import World

FIXED = ("clients.data_fraction=0.9", "clients.local_epochs=1")
MOVING = (
    "federation.server_model=updated",
    "clients.lr=0.001",
    "clients.dataset_size=64",
    "clients.batch_size=8",
)
CELLS: dict[str, tuple[float, tuple[str, ...]]] = {
    "f64": (0.06, (*FIXED, "clients.dataset_size=64", "clients.batch_size=8")),
    "f128": (0.59, (*FIXED, "clients.dataset_size=128", "clients.batch_size=16")),
    "m4": (0.30, (*MOVING, "clients.local_epochs=4")),
    "m8": (0.0, (*MOVING, "clients.local_epochs=8")),
}
"""For each cell, the paper's fraction of columns and the settings."""


def trained(cell: str, seed: int, data: Path, folder: Path) -> RunDirectory:
    """Train a cell without attacking it; leave transcript, counts and truth."""
    directory = RunDirectory(folder / f"{cell}-{seed}")
    if not directory.counts.exists():
        settings = (*CELLS[cell][1], f"data.path={data}", f"seed={seed}")
        scenario = load_scenario(find_scenario("cifar10_fedavg"), settings)
        directory = RunDirectory.create(directory.path, replace=True)
        train_run(World.prepare(scenario), directory, engine=Inline(workers=1))
        publish(scenario, directory)
    return directory


def measure(cell: str, seed: int, directory: RunDirectory) -> str:
    view, truth = AttackerView.load(directory.transcript, directory.counts), Truth.load(directory.truth)
    transcript = view.transcript
    problem = DisaggregationProblem(
        transcript.aggregates,
        view.counts,
        cohort_sizes=transcript.cohort_sizes,
        layer_shapes=transcript.layer_shapes,
    )
    began = time.process_time()
    recovery = disaggregate(problem, rng=np.random.default_rng(seed))
    seconds = time.process_time() - began
    right = (recovery.participation == truth.participation).all(axis=0)
    wrong = np.sort(recovery.confidence[~right])[::-1][:5]
    chance = np.exp(-_log_choices(problem)).mean()
    return (
        f"{cell:5} {seed:4} {CELLS[cell][0]:6.2f} {right.mean():6.2f} {recovery.confidence.mean():11.3f}"
        f" {chance:7.0e} {seconds:6.1f}  {recovery.solver}, wrong with {wrong.round(2).tolist()}"
    )


def _log_choices(problem: DisaggregationProblem) -> np.ndarray:
    """Return (K,) the logarithm of the number of columns that have a client's counts."""
    from scipy.special import gammaln

    lengths, counts = problem.windows.lengths, problem.windows.count
    return np.asarray(
        (gammaln(lengths + 1) - gammaln(counts + 1) - gammaln(lengths - counts + 1)).sum(axis=1)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--train-only", action="store_true")
    options = parser.parse_args()
    print("cell  seed  paper  exact  confidence  chance  cpu s")
    with tempfile.TemporaryDirectory() as temporary:
        for cell in options.cells:
            for seed in options.seeds:
                directory = trained(cell, seed, options.data, options.keep or Path(temporary))
                if not options.train_only:
                    print(measure(cell, seed, directory), flush=True)


if __name__ == "__main__":
    main()

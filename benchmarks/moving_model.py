"""Recovery while the server's model really learns: guess, attack, and ceiling.

    python -m benchmarks.moving_model DATA [--cells learning rare …] [--seeds 1 2 3] [--keep FOLDER]

DATA is a copy of CIFAR-10 (torchvision's folder, or an .npz file). Each cell is a federation whose model is
updated, with its own counts. Trainings are kept in `--keep` and not repeated. Each line is one run. First the
share of the participations found: by guessing in proportion to the counts, by the solver, and at best (the
ceiling of `scenarios.run.ceiling`). Then the precision of the solver's ones, the exactly right columns, those
right up to an exchange of names, the columns with a confidence above .9, how many of these are right, and the
solver's CPU seconds. Last, the share of the participations that somebody finds who is told all columns, but
not whose they are, and names them by the counts. The ceiling is told everybody else's name, so where counts
are noisy it lies above this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.recovery import Outcome
from attacks.view import AttackerView
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.runner import publish, train_run
from scenarios.run.scenario import Scenario, find_scenario, load_scenario
from scenarios.run.scoring import named, score_disaggregation
from scenarios.run.world import World

LEARNING = ("federation.server_model=updated", "clients.lr=0.05", "clients.local_epochs=1")
SMALL = (
    *("federation.server_model=updated", "federation.clients=40", "federation.rounds=120"),
    *("clients.lr=0.05", "clients.local_epochs=4", "clients.batch_size=64", "analytics.window=8"),
    'federation.participation={name="bernoulli",rate=0.15}',
)
"""The federation of the evaluation `defences_cifar10`."""
CELLS: dict[str, tuple[str, ...]] = {
    "learning": LEARNING,
    "long": (*LEARNING, "federation.rounds=400"),
    "epochs": ("federation.server_model=updated", "clients.lr=0.02", "clients.local_epochs=4"),
    "skewed-0.1": (*LEARNING, 'data.partition={name="dirichlet",alpha=0.1}'),
    "skewed-0.5": (*LEARNING, 'data.partition={name="dirichlet",alpha=0.5}'),
    "unequal": (*LEARNING, 'data.partition={name="iid",size_spread=0.75}'),
    "half": (*LEARNING, 'analytics.release=[{name="drop",fraction=0.5}]'),
    "rare": (*LEARNING, "analytics.window=50"),
    "small": SMALL,
    "small-rare": (*SMALL, "analytics.window=50"),
    "small-threes": (*SMALL, 'analytics.release=[{name="rounding",multiple=3}]'),
    "small-half": (*SMALL, 'analytics.release=[{name="drop",fraction=0.5}]'),
    "small-private": (*SMALL, 'analytics.release=[{name="private",epsilon=1.0}]'),
    "few": (
        *(*LEARNING, "federation.clients=40", "federation.rounds=100"),
        'federation.participation={name="cohort",size=6}',
    ),
    "uncounted": (
        *("federation.server_model=updated", "federation.rounds=250", "clients.lr=0.001"),
        "analytics.collection=off",
    ),
}
"""Changes of the library scenario `cifar10_fedavg`, which has 100 clients, 200 rounds and counts per 10."""
HARDEST_OF_S1 = (
    *((64, 8, 8), (64, 8, 16), (64, 8, 32), (64, 16, 32)),
    *((128, 8, 8), (128, 8, 16), (128, 8, 32), (128, 16, 16), (128, 16, 32), (128, 32, 32)),
)
"""Images, batch size and local epochs of the cells of the paper's table S1 that were below 1 at first."""
CELLS |= {
    f"S1-{images}-{batch}-{epochs}": (
        *("federation.server_model=updated", "clients.lr=0.001", f"clients.dataset_size={images}"),
        *(f"clients.batch_size={batch}", f"clients.local_epochs={epochs}"),
    )
    for images, batch, epochs in HARDEST_OF_S1
}
SURE = 0.9
"""Confidence above which a column counts as sure."""


def trained(cell: str, seed: int, data: Path, folder: Path) -> RunDirectory:
    """Train a cell without attacking it; leave transcript, counts and truth."""
    directory = RunDirectory(folder / f"{cell}-{seed}")
    settings = (*CELLS[cell], f"data.path={data}", f"seed={seed}")
    scenario = load_scenario(find_scenario("cifar10_fedavg"), settings)
    if directory.counts.exists():
        _check_kept(directory, scenario)
    else:
        directory = RunDirectory.create(directory.path, replace=True)
        train_run(World.prepare(scenario), directory, engine=Inline(workers=1))
        publish(scenario, directory)
    return directory


def _check_kept(directory: RunDirectory, scenario: Scenario) -> None:
    """A kept training must be of this cell: devices counted in its windows, whatever was published later."""
    kept = load_scenario(directory.scenario)
    for name in ("seed", "clients", "federation", "defences"):
        if getattr(kept, name) != getattr(scenario, name):
            sys.exit(f"{directory.path}: was trained with other settings under {name}: remove it")
    counts, window = ParticipationReport.read_csv(directory.counts), scenario.analytics.window
    if scenario.analytics.publishes_counts and (counts.stop - counts.start).max(initial=0) != window:
        sys.exit(f"{directory.counts}: has no counts over {window} rounds: remove it")


def measure(cell: str, seed: int, solver: str, directory: RunDirectory) -> str:
    """One line of the table."""
    view, truth = AttackerView.load(directory.transcript, directory.counts), Truth.load(directory.truth)
    began = time.process_time()
    recovery = disaggregate(view.problem(), solver, rng=np.random.default_rng(seed))
    seconds = time.process_time() - began
    score = score_disaggregation(recovery, truth, view.transcript, view.counts, made_beside_truth=True)
    if score.pseudonymous:
        recovery = named(recovery, truth)
    right = (recovery.participation == truth.participation[:, recovery.clients.astype(np.int64)]).all(axis=0)
    sure = (recovery.outcome != Outcome.UNRESOLVED) & (recovery.confidence > SURE)
    ones = (score.baselines.counts_only_ones_found, score.ones_found, score.ceiling.ones_found)
    figures = (*ones, score.ones_precision, score.exact_fraction, score.exact_up_to_names)
    shares = " ".join(_share(figure) for figure in figures)
    columns = f"{sure.sum():5} {(right & sure).sum():5}"
    by_counts = _share(named_by_counts(view.problem(), truth.participation))
    return f"{cell:14} {seed:5} {shares} {columns} {seconds:6.0f} {by_counts}  {recovery.solver}"


def _share(figure: float | None) -> str:
    return "     –" if figure is None else f"{figure:6.3f}"


def named_by_counts(problem: DisaggregationProblem, participation: NDArray[np.uint8]) -> float | None:
    """Share of the ones right if true columns (rounds, clients) get the names that fit the counts best."""
    if problem.counts is None:
        return None
    columns = participation.T[problem.clients.astype(np.int64)]
    whose = attribute(problem.windows, columns).column
    right = np.where((whose >= 0)[:, None], columns[whose], 0) & columns
    return float(right.sum() / columns.sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    print(
        "cell            seed  guess attack ceiling prec.  exact  names  sure right  cpu s  named  solver",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for cell in options.cells:
            for seed in options.seeds:
                directory = trained(cell, seed, options.data, folder)
                print(measure(cell, seed, options.solver, directory), flush=True)


if __name__ == "__main__":
    main()

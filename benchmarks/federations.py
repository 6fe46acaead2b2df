"""What do strategies, recipes, weights and networks change? Accuracy, exposed clients and the ceiling.

    python -m benchmarks.federations DATA [--cells fedavg fedadam …] [--seeds 11 12 13] [--out TABLE.csv]
    python -m benchmarks.federations --table TABLE.csv

DATA is a copy of CIFAR-10 (torchvision's folder, or an .npz file). Every cell is one federation whose model
is updated. The shares of participations found are those of a guess by the counts, of the solver, and of the
ceiling; *exposed* are the clients whose whole column is right. With `--out`, every finished run is appended
to a table, and runs that it holds are not repeated. The second command prints the means over the seeds as a
table of Markdown, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from attacks.disaggregation import disaggregate
from attacks.view import AttackerView
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.runner import publish, train_run
from scenarios.run.scenario import find_scenario, load_scenario
from scenarios.run.scoring import score_disaggregation
from scenarios.run.world import World

FEDERATION = (
    *("federation.server_model=updated", "federation.clients=16", "federation.rounds=64"),
    *("clients.dataset_size=64", "clients.batch_size=16", "clients.local_epochs=2", "clients.lr=0.05"),
    "analytics.window=8",
    'federation.participation={name="bernoulli",rate=0.2}',
)
SKEWED = 'data.partition={name="iid",sizes={name="power_law",exponent=1.5,smallest=8}}'
NETWORK = (
    *("federation.clients=12", "federation.rounds=48", "clients.local_epochs=1", "model={name='resnet'}"),
)
CELLS: dict[str, tuple[str, ...]] = {
    "fedavg": (),
    "fedavgm": ('federation.strategy={name="fedavgm",server_momentum=0.9}', "clients.lr=0.01"),
    "fedadam": ('federation.strategy={name="fedadam",eta=0.003}',),
    "fedadagrad": ('federation.strategy={name="fedadagrad",eta=0.01}',),
    "fedyogi": ('federation.strategy={name="fedyogi",eta=0.003}',),
    "fedprox": ("clients.proximal_mu=1.0",),
    "adam": ("clients.optimiser=adam", "clients.lr=0.001"),
    "decay": ("clients.weight_decay=0.01",),
    "clipped": ("clients.gradient_clip=1.0",),
    "cosine": ('clients.lr_schedule={name="cosine",rounds=96}',),
    "sizes": (SKEWED,),
    "weighted": (SKEWED, "clients.weighting=examples"),
    "scaffold": ("clients.algorithm=scaffold",),
    "scaffold-sizes": (SKEWED, "clients.algorithm=scaffold"),
    "scaffold-sizes-updates": (SKEWED, "clients.algorithm=scaffold"),
    "lenet-short": (*NETWORK, "model={name='lenet'}"),
    "resnet-group": NETWORK,
    "resnet-layer": (*NETWORK, "model.norm=layer"),
    "resnet-batch": (*NETWORK, "model.norm=batch"),
    "resnet-batch-local": (*NETWORK, "model.norm=batch", "model.statistics=local"),
    "resnet-batch-fedbn": (*NETWORK, "model.norm=batch", "model.statistics=fedbn"),
    "resnet-batch-frozen": (*NETWORK, "model.norm=batch", "model.statistics=frozen"),
    "resnet-dropout": (*NETWORK, "model.dropout=0.3"),
    # Otherwise evaluations would take longer than the training.
    "resnet18": (*NETWORK, "model={name='resnet18'}", "federation.evaluate_every=24"),
    "vit": (*NETWORK, "model={name='vit',width=32,layers=2,hidden=64}"),
}
"""Changes of the library scenario `cifar10_fedavg`, after those of `FEDERATION`."""
UPDATES_ONLY = ("scaffold-sizes-updates",)
"""Cells whose attack ignores the second sum of a round, that of the control variates' changes."""
SOLVER = "auto"
"""The default solver. `message_passing` alone misses columns here that annealing finds."""
FIGURES = ("accuracy", "guess", "found", "ceiling", "exposed", "exposed at best", "cpu_s")


def measured(cell: str, seed: int, data: Path) -> dict[str, float | str]:
    """One run: the training, the attack on its transcript and counts, and their scores."""
    settings = (*FEDERATION, *CELLS[cell], f"data.path={data}", f"seed={seed}")
    scenario = load_scenario(find_scenario("cifar10_fedavg"), settings)
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="fedsim-") as folder:
        directory = RunDirectory.create(Path(folder) / "run", replace=False)
        honest = train_run(World.prepare(scenario), directory, engine=Inline(workers=1))
        publish(scenario, directory)
        view, truth = AttackerView.load(directory.transcript, directory.counts), Truth.load(directory.truth)
        if cell in UPDATES_ONLY:
            view, truth = without_second_sum(view, truth)
        recovery = disaggregate(view.problem(), SOLVER, rng=np.random.default_rng(seed))
        score = score_disaggregation(recovery, truth, view.transcript, view.counts, made_beside_truth=True)
    assert score.ceiling is not None
    figures = (
        honest.training.test_accuracy,
        score.baselines.counts_only_ones_found,
        score.ones_found,
        score.ceiling.ones_found,
        score.exact_fraction,
        score.ceiling.exact_fraction,
        time.process_time() - began,
    )
    said = {name: "" if each is None else f"{each:.4f}" for name, each in zip(FIGURES, figures, strict=True)}
    return {"cell": cell, "seed": seed, **said, "solver": recovery.solver}


def without_second_sum(view: AttackerView, truth: Truth) -> tuple[AttackerView, Truth]:
    """The same with the first half of the columns alone."""
    transcript = view.transcript
    dim, layers = transcript.aggregates.shape[1] // 2, len(transcript.layer_shapes) // 2
    updates = replace(
        transcript, aggregates=transcript.aggregates[:, :dim], layer_shapes=transcript.layer_shapes[:layers]
    )
    return replace(view, transcript=updates), replace(truth, updates=truth.updates[:, :dim])


def table(file: Path) -> str:
    """The means over seeds, in brackets the smallest and the largest."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(file.open(encoding="utf-8")):
        rows.setdefault(row["cell"], []).append(row)
    shown = FIGURES[:-1]
    lines = [f"| cell | seeds | {' | '.join(shown)} |", "|---" * (2 + len(shown)) + "|"]
    for cell in (cell for cell in CELLS if cell in rows):
        figures = []
        for name in shown:
            values = [float(row[name]) for row in rows[cell] if row[name]]
            spread = f"{statistics.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})" if values else "–"
            figures.append(spread)
        lines.append(f"| {cell} | {len(rows[cell])} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table is not None:
        print(table(options.table))
        return
    if options.data is None:
        parser.error("expected DATA")
    columns = ("cell", "seed", *FIGURES, "solver")
    done: set[tuple[str, str]] = set()
    if options.out is not None and options.out.exists():
        done = {(row["cell"], row["seed"]) for row in csv.DictReader(options.out.open(encoding="utf-8"))}
    with options.out.open("a", encoding="utf-8") if options.out else sys.stdout as file:
        lines = csv.DictWriter(file, columns, lineterminator="\n")
        if not done:
            lines.writeheader()
        for seed in options.seeds:
            for cell in options.cells:
                if (cell, str(seed)) not in done:
                    lines.writerow(measured(cell, seed, options.data))
                    file.flush()


if __name__ == "__main__":
    main()

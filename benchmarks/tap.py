"""Claimed and right columns of audits, for every kind of log that servers store.

An app with 16 clients trains a small network on tables for 96 rounds. Three in ten clients are invited to a
round, and a fifth of these fail, so that cohorts differ in size. Taps record the training in several ways.

    python -m benchmarks.tap --seeds 5
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM

from fedsim import Tap
from fedsim.flower import enter_local_task
from fedsim.grids.inline import InlineGrid
from scenarios.audit.audit import Audit, audit
from scenarios.audit.checkpoints import Checkpoints
from scenarios.audit.logs import Log
from scenarios.audit.score import score
from scenarios.audit.servers import server_named
from scenarios.audit.tap_folder import TapFolder

CLIENTS, ROUNDS, WINDOW, FEATURES, HIDDEN, CLASSES = 16, 96, 8, 20, 32, 4
WEIGHT = "num-examples"


def table_app(
    seed: int, *, batch_norm: bool = False, failing: float = 0.2, mods: Sequence[Mod] = ()
) -> ClientApp:
    """Every client has its own table; its classes and its features have a shift of their own.

    A client fails in a round with the probability `failing`.
    """
    app = ClientApp(mods=list(mods))

    def table(client: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        rng = np.random.default_rng([seed, client])
        labels = rng.choice(CLASSES, size=60 + 10 * client, p=rng.dirichlet(np.ones(CLASSES)))
        centres = np.random.default_rng(seed).standard_normal((CLASSES, FEATURES))
        shift = 0.5 * rng.standard_normal(FEATURES)
        return centres[labels] + shift + rng.standard_normal((len(labels), FEATURES)), labels

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        config, arrays = message.content.config_records["config"], message.content.array_records["arrays"]
        rng = np.random.default_rng([seed, client, int(config["server-round"])])  # type: ignore[arg-type]
        if rng.random() < failing:
            return Message(Error(code=7, reason="battery"), reply_to=message)
        model = {name: array.numpy().copy() for name, array in arrays.items()}
        x, y = table(client)
        for _ in range(2):
            for batch in np.array_split(rng.permutation(len(x)), max(1, len(x) // 20)):
                _step(model, x[batch], y[batch], batch_norm=batch_norm)
        content = RecordDict()
        content["arrays"] = ArrayRecord({name: Array(np.asarray(a)) for name, a in model.items()})
        content["metrics"] = MetricRecord({WEIGHT: len(x), "bias": float(model["last.bias"].max())})
        return Message(content, reply_to=message)

    return app


def _step(
    model: dict[str, Any],
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    *,
    batch_norm: bool,
    rate: float = 0.05,
) -> None:
    """One step of gradient descent on a network with one hidden layer, and perhaps a normalised input."""
    if batch_norm:
        model["norm.running_mean"] += (0.1 * (x.mean(axis=0) - model["norm.running_mean"])).astype(np.float32)
        model["norm.running_var"] += (0.1 * (x.var(axis=0) - model["norm.running_var"])).astype(np.float32)
        model["norm.num_batches_tracked"] = model["norm.num_batches_tracked"] + 1
        x = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
    hidden = np.maximum(x @ model["first.weight"].T + model["first.bias"], 0)
    logits = hidden @ model["last.weight"].T + model["last.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    wrong = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    wrong[np.arange(len(y)), y] -= 1
    wrong /= len(y)
    back = (wrong @ model["last.weight"]) * (hidden > 0)
    for name, gradient in (
        ("last.weight", wrong.T @ hidden),
        ("last.bias", wrong.sum(axis=0)),
        ("first.weight", back.T @ x),
        ("first.bias", back.sum(axis=0)),
    ):
        model[name] -= (rate * gradient).astype(np.float32)


def initial(seed: int, *, batch_norm: bool = False, hidden: int = HIDDEN) -> ArrayRecord:
    """The model before the first round."""
    rng = np.random.default_rng([seed, 99])
    arrays: dict[str, Any] = {
        "first.weight": rng.standard_normal((hidden, FEATURES)) / 5,
        "first.bias": np.zeros(hidden),
        "last.weight": rng.standard_normal((CLASSES, hidden)) / 6,
        "last.bias": np.zeros(CLASSES),
    }
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    if batch_norm:
        arrays |= {
            "norm.running_mean": np.zeros(FEATURES, np.float32),
            "norm.running_var": np.ones(FEATURES, np.float32),
        }
        arrays["norm.num_batches_tracked"] = np.array(0)
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def train(
    folder: Path, seed: int, strategy: Any, taps: dict[str, dict[str, Any]], *, batch_norm: bool = False
) -> None:
    """Train once, with several taps around the strategy."""
    for name, settings in taps.items():
        strategy = Tap(strategy, out=folder / name, window=WINDOW, **settings)
    random.seed(seed)
    enter_local_task()
    grid = InlineGrid(table_app(seed, batch_norm=batch_norm), CLIENTS)
    strategy.start(grid, initial(seed, batch_norm=batch_norm), num_rounds=ROUNDS)


RECORDINGS: dict[str, dict[str, Any]] = {
    "sums": {},
    "weighted sums": {"weighted_by": WEIGHT},
    "means": {"record": "mean"},
    "weighted means": {"record": "mean", "weighted_by": WEIGHT},
    "checkpoints": {"record": "model", "weighted_by": WEIGHT},
}
SAMPLING: dict[str, Any] = {"fraction_train": 0.3, "fraction_evaluate": 0.0}


def logs(folder: Path, seed: int) -> Iterator[tuple[str, Log, TapFolder]]:
    """Every kind of log of one training, read as it should be, then read wrongly; and where the truth is."""
    train(folder, seed, FedAvg(**SAMPLING), RECORDINGS)
    for name in RECORDINGS:
        tap = TapFolder.open(folder / name)
        yield name, tap.read(), tap
    saved, sizes, counts = _saved(folder / "checkpoints"), *_tables(folder / "checkpoints")
    truth = TapFolder.open(folder / "checkpoints")
    chosen = np.sort(np.random.default_rng([seed, 7]).permutation(np.arange(ROUNDS + 1))[8:])
    yield (
        "checkpoints with gaps",
        Log.of_models(
            Checkpoints(saved[chosen], chosen, _shapes(folder / "checkpoints")),
            folder,
            None,
            counts,
            cohort_sizes=sizes,
        ),
        truth,
    )
    yield "sums with gaps", _with_gaps(folder / "sums", seed), truth
    yield "sums in fp16", _rounded(folder / "sums"), truth
    aggregates = folder / "sums/transcript/aggregates.npy"
    yield "sums without layers", Log.read(aggregates, counts, cohort_sizes=sizes, rows="sums"), truth
    for name, strategy, server in (
        (
            "FedAvgM",
            FedAvgM(**SAMPLING, server_momentum=0.9, server_learning_rate=0.3),
            "fedavgm,server_learning_rate=0.3",
        ),
        ("FedAdam", FedAdam(**SAMPLING, eta=0.02), "fedadam,eta=0.02"),
    ):
        train(folder, seed, strategy, {name: RECORDINGS["checkpoints"]})
        tap = TapFolder.open(folder / name)
        yield f"checkpoints of {name}", tap.read(server_named(server)), tap
    train(folder, seed, FedAvg(**SAMPLING), {"norm": RECORDINGS["checkpoints"]}, batch_norm=True)
    tap = TapFolder.open(folder / "norm")
    yield "checkpoints with BatchNorm", tap.read(), tap

    # Read wrongly, as a user might.
    np.save(folder / "models.npy", saved[1:])
    yield "checkpoints read as sums", Log.read(folder / "models.npy", counts, cohort_sizes=sizes), truth
    np.save(folder / "steps.npy", np.diff(saved, axis=0))
    yield "their differences read as sums", Log.read(folder / "steps.npy", counts, cohort_sizes=sizes), truth
    yield "the same without cohort sizes", Log.read(folder / "steps.npy", counts), truth
    tap = TapFolder.open(folder / "FedAdam")
    yield "FedAdam read as FedAvg", tap.read(), tap
    whole = np.round(np.load(folder / "sums/transcript/aggregates.npy") * 2**16).astype(np.int64)
    np.save(folder / "integers.npy", whole % 2**16)
    yield "integers modulo 2**16 read as numbers", Log.read(folder / "integers.npy", counts), truth


def _saved(tap: Path) -> Any:
    """(rounds + 1, dim) the models that a server saved."""
    transcript = tap / "transcript"
    return np.vstack([np.load(transcript / "initial.npy"), np.load(transcript / "aggregates.npy")])


def _tables(tap: Path) -> tuple[Path, Path]:
    return tap / "transcript/rounds.csv", tap / "counts.csv"


def _shapes(tap: Path) -> tuple[tuple[int, ...], ...]:
    """The shapes of the arrays in a saved model, which its files tell."""
    shapes = json.loads((tap / "transcript/layers.json").read_text())["shapes"]
    return tuple(tuple(shape) for shape in shapes)


def _with_gaps(tap: Path, seed: int) -> Log:
    """Eight rounds were lost."""
    sizes, counts = _tables(tap)
    kept = np.sort(np.random.default_rng([seed, 8]).permutation(ROUNDS)[8:])
    np.save(tap / "gaps.npy", np.load(tap / "transcript/aggregates.npy")[kept])
    header, *lines = sizes.read_text().splitlines()
    (tap / "gaps.csv").write_text("\n".join([header, *(lines[r] for r in kept)]))
    layers = tap / "transcript/layers.json"
    return Log.read(tap / "gaps.npy", counts, cohort_sizes=tap / "gaps.csv", layers=layers, rows="sums")


def _rounded(tap: Path) -> Log:
    sizes, counts = _tables(tap)
    np.save(tap / "half.npy", np.load(tap / "transcript/aggregates.npy").astype(np.float16))
    layers = tap / "transcript/layers.json"
    return Log.read(tap / "half.npy", counts, cohort_sizes=sizes, layers=layers, rows="sums")


def main() -> None:
    """Print a line per kind of log: columns claimed, expected to be right, and right, over all seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings, from --first on")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    options = parser.parse_args()
    rows: dict[str, list[Audit]] = {}
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            for name, log, tap in logs(Path(folder), seed):
                found = audit(log, alternatives=False)
                truth = tap.truth()
                assert truth is not None
                judged = score(found, truth, log.rounds)
                rows.setdefault(name, []).append(replace(found, score=judged))
                print(f"{seed} {name}: {found.verdict}, {judged}", file=sys.stderr, flush=True)
    print("| log | inconclusive | claimed | expected right | right |")
    print("|---|--:|--:|--:|--:|")
    for name, audits in rows.items():
        scores = [found.score for found in audits if found.score is not None]
        unclear = sum(found.verdict == "inconclusive" for found in audits)
        of = sum(s.clients for s in scores)
        print(
            f"| {name} | {unclear} of {len(audits)} | {sum(s.claimed for s in scores)} of {of} "
            f"| {sum(s.expected for s in scores):.1f} | {sum(s.right for s in scores)} |"
        )


if __name__ == "__main__":
    main()

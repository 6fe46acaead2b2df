"""Alarms against exposures: does the monitor of a tap warn before the first client is exposed?

Simulated federations of several kinds train with a tap and its monitor. Afterwards the recording is attacked
after every 8 rounds, as if it had ended there, until the attack separates somebody and is right about it,
twice in a row (a single hit may be luck). An alarm is right if that happens.

    python -m benchmarks.monitor --federations 50 --first 1
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.tap import initial, table_app
from fedsim import ExposureMonitor, Tap
from fedsim.flower import enter_local_task
from fedsim.grids.inline import InlineGrid
from scenarios.audit.audit import audit
from scenarios.audit.logs import Log
from scenarios.audit.score import score
from scenarios.audit.tap_folder import TapFolder

EVERY, STEP = 8, 8


def changed(app: ClientApp, change: Callable[[str, np.ndarray, np.ndarray, np.random.Generator], Any]) -> Any:
    """The app whose clients return `change(name, sent, trained, rng)` in place of every array."""
    other = ClientApp()

    @other.train()
    def train(message: Message, context: Context) -> Message:
        sent = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        reply = app(message, context)
        if reply.has_error():
            return reply
        number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        rng = np.random.default_rng([int(context.node_config["partition-id"]), number])
        trained = reply.content.array_records["arrays"]
        arrays = {
            name: Array(np.asarray(change(name, sent[name], array.numpy(), rng), np.float32))
            for name, array in trained.items()
        }
        reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    return other


def learning(seed: int) -> ClientApp:
    """The model learns on minibatches."""
    return table_app(seed)


def fixed(seed: int) -> ClientApp:
    """Clients always send the same update, as with a fixed model and full batches."""

    def same(name: str, sent: Any, trained: Any, rng: np.random.Generator) -> Any:
        client = int(rng.bit_generator.seed_seq.entropy[0])  # type: ignore[attr-defined]
        own = np.random.default_rng([seed, client, len(name)])
        return sent + 0.01 * own.standard_normal(sent.shape)

    return changed(table_app(seed), same)  # type: ignore[no-any-return]


def noisy(times: float) -> Callable[[int], ClientApp]:
    """Every client adds noise to its update: so many times the size of its entries."""

    def app(seed: int) -> ClientApp:
        def blurred(name: str, sent: Any, trained: Any, rng: np.random.Generator) -> Any:
            size = times * np.sqrt(((trained - sent) ** 2).mean())
            return trained + size * rng.standard_normal(sent.shape)

        return changed(table_app(seed), blurred)  # type: ignore[no-any-return]

    return app


@dataclass(frozen=True)
class Kind:
    """A kind of federation: its app, and rounds per client."""

    name: str
    app: Callable[[int], ClientApp]
    rounds_per_client: float
    windows: tuple[int | None, ...] = (4, 8)
    solver: str = "message_passing"


KINDS = (
    Kind("the model learns", learning, 4),
    Kind("equal updates", fixed, 4, solver="projection"),
    Kind("noise of 3 updates", noisy(3), 4),
    Kind("noise of 30 updates", noisy(30), 4),
    Kind("the model learns, no counts", learning, 4, (None,), "blind"),
)


@dataclass(frozen=True)
class Federation:
    """One federation, drawn from its seed."""

    seed: int

    @property
    def kind(self) -> Kind:
        """Kinds take turns."""
        return KINDS[self.seed % len(KINDS)]

    @property
    def drawn(self) -> tuple[int, float, int | None]:
        """Clients, rate and window."""
        rng = np.random.default_rng([self.seed, 5])
        return (
            int(rng.choice([8, 12, 16])),
            float(rng.choice([0.2, 0.3, 0.4])),
            self.kind.windows[int(rng.integers(len(self.kind.windows)))],
        )

    def train(self, folder: Path, **monitor: Any) -> tuple[float, float]:
        """Record the training; the CPU seconds of the monitor and of everything."""
        clients, rate, window = self.drawn
        strategy = FedAvg(fraction_train=rate, fraction_evaluate=0.0, min_train_nodes=1)
        watching = ExposureMonitor(every=EVERY, attack=False, **monitor)
        tap = Tap(strategy, out=folder, window=window, monitor=watching)
        watch, spent = tap._recorder.watch, 0.0
        add = watch.add

        def timed(*arguments: Any) -> None:
            nonlocal spent
            began = time.process_time()
            add(*arguments)
            spent += time.process_time() - began

        watch.add = timed
        random.seed(self.seed)
        enter_local_task()
        grid = InlineGrid(self.kind.app(self.seed), clients)
        began = time.process_time()
        tap.start(grid, initial(self.seed), num_rounds=int(self.kind.rounds_per_client * clients))
        return spent, time.process_time() - began


def alarm_of(folder: Path) -> int | None:
    """The round of the first alarm."""
    lines = map(json.loads, (folder / "exposure.jsonl").read_text().splitlines())
    return next((int(line["round"]) for line in lines if "alarm" in line), None)


def exposed(folder: Path, solver: str, rounds: int | None = None) -> int:
    """Clients that the attack separates rightly, from the first `rounds` of a recording."""
    tap = TapFolder.open(folder)
    truth = tap.truth()
    assert truth is not None
    rows = np.load(folder / "transcript/aggregates.npy")
    rounds = rounds or len(rows)
    begun = folder / f"first-{rounds}"
    begun.mkdir(exist_ok=True)
    np.save(begun / "sums.npy", rows[:rounds])
    header, *lines = (folder / "transcript/rounds.csv").read_text().splitlines()
    (begun / "rounds.csv").write_text("\n".join([header, *lines[:rounds]]) + "\n")
    there = {client for client, column in truth.items() if column[:rounds].any()}
    counts = None
    if tap.counts is not None:
        header, *lines = tap.counts.read_text().splitlines()
        # A client that is not there yet has no line yet.
        lines = [one for one in lines if int(one.split(",")[2]) <= rounds and one.partition(",")[0] in there]
        if lines:
            counts = begun / "counts.csv"
            counts.write_text("\n".join([header, *lines]) + "\n")
    log = Log.read(begun / "sums.npy", counts, cohort_sizes=begun / "rounds.csv", rows="sums")
    # Before the first counts only the sums are left.
    try:
        found = audit(log, solver="blind" if counts is None else solver, alternatives=False)
    except np.linalg.LinAlgError as error:
        print(f"  the attack on the first {rounds} rounds broke down: {error}", flush=True)
        return 0
    return score(found, {client: truth[client][:rounds] for client in there}, None).right


def first_exposure(folder: Path, solver: str) -> int | None:
    """The first number of rounds, in steps of 8, after which somebody is exposed, and 8 rounds later, too."""
    rounds = len(np.load(folder / "transcript/aggregates.npy"))
    before = None
    for t in range(STEP, rounds + 1, STEP):
        if not exposed(folder, solver, t):
            before = None
        elif before is not None:
            return before
        else:
            before = t
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--federations", type=int, default=50)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--consequences", action="store_true", help="also train with stop and coarsen")
    options = parser.parse_args()
    rows: dict[str, list[tuple[int | None, int | None, list[int]]]] = {kind.name: [] for kind in KINDS}
    shares = []
    for seed in range(options.first, options.first + options.federations):
        federation = Federation(seed)
        with tempfile.TemporaryDirectory() as folder:
            spent, everything = federation.train(Path(folder) / "warn")
            shares.append(spent / everything)
            solver = federation.kind.solver
            alarm, first = alarm_of(Path(folder) / "warn"), first_exposure(Path(folder) / "warn", solver)
            ends = []
            if options.consequences:
                for then in ("coarsen", "stop"):
                    federation.train(Path(folder) / then, then=then)
                ends = [exposed(Path(folder) / then, solver) for then in ("warn", "coarsen", "stop")]
        rows[federation.kind.name].append((alarm, first, ends))
        line = f"seed {seed}: {federation.kind.name}, {federation.drawn}: alarm {alarm}, exposed {first}"
        print(line, *ends, flush=True)
    print("| federations | number | alarms | right | exposed | alarm before | same round | ahead, median |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, found in (*rows.items(), ("all", [row for kind in rows.values() for row in kind])):
        alarms = [(alarm, first) for alarm, first, _ in found if alarm is not None]
        exposures = [(alarm, first) for alarm, first, _ in found if first is not None]
        before = [first - alarm for alarm, first in exposures if alarm is not None and alarm < first]
        same = sum(alarm == first for alarm, first in exposures)
        right = sum(first is not None for _, first in alarms)
        ahead = f"{np.median(before):.0f}" if before else "–"
        numbers = (len(found), len(alarms), right, len(exposures), len(before), same, ahead)
        print("|", name, "|", " | ".join(map(str, numbers)), "|")
    if options.consequences:
        totals = np.array([ends for found in rows.values() for _, _, ends in found]).sum(axis=0)
        print(f"exposed clients in the end: warn {totals[0]}, coarsen {totals[1]}, stop {totals[2]}")
    print(f"CPU of the monitor, share of the whole training: {np.mean(shares):.3f}")


if __name__ == "__main__":
    main()

"""How many rounds does the `blind` solver need? Prints the fraction of columns recovered without any counts.

    python -m benchmarks.blind frontier --clients 64 --rounds-per-client 1.5 2 3 --out docs/blind-frontier
    python -m benchmarks.blind noise --clients 100 --rounds-per-client 3 4 6
    python -m benchmarks.blind fedavg runs/fixed runs/moving --rounds 150 200 300 400

Each cell is the mean over seeds of the fraction of columns recovered, with the CPU seconds of a run in
brackets. `!n` means that n columns with a confidence above .95 were wrong. Beside it stands the `projection`
solver with exact counts over windows of 10 rounds. `--out` adds every run to a table (.csv) and draws the
whole table (.svg). `fedavg` attacks growing parts of a run's transcript.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytics.report import windowed_counts
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.solvers import Blind, Projection, Solver

WINDOW = 10
HIGH_CONFIDENCE = 0.95
"""Wrong columns above this confidence are counted."""


@dataclass(frozen=True)
class Score:
    """One recovery against the truth."""

    found: float
    wrong: int
    seconds: float

    @classmethod
    def measured(
        cls, problem: DisaggregationProblem, solver: Solver, truth: NDArray[np.uint8], seed: int
    ) -> Score:
        """Run a solver, time it and score its recovery."""
        began = time.process_time()
        recovery = disaggregate(problem, solver, rng=np.random.default_rng(seed))
        return cls.of(recovery, truth, time.process_time() - began)

    @classmethod
    def of(cls, recovery: Recovery, truth: NDArray[np.uint8], seconds: float) -> Score:
        """Score a recovery. Columns count once, for any client; `seconds` is CPU time."""
        true = {column.tobytes() for column in np.ascontiguousarray(truth.T)}
        columns = [column.tobytes() for column in np.ascontiguousarray(recovery.participation.T)]
        wrong = sum(
            c not in true and sure > HIGH_CONFIDENCE
            for c, sure in zip(columns, recovery.confidence, strict=True)
        )
        return cls(len(true & set(columns)) / len(true), wrong, seconds)


def cell(scores: list[Score]) -> str:
    found, seconds = (float(np.mean([getattr(s, name) for s in scores])) for name in ("found", "seconds"))
    wrong = sum(s.wrong for s in scores)
    return f"{found:.2f} ({seconds:.1f}s)" + (f" !{wrong}" if wrong else "")


def planted(
    seed: int, *, clients: int, rounds: int, rate: float, dim: int, noise_sd: float = 0.0
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return Bernoulli participation and the sums of Gaussian updates; each participant adds noise."""
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < rate).astype(np.uint8)
    A = P.astype(np.float32) @ rng.standard_normal((clients, dim), dtype=np.float32)
    if noise_sd:
        scale = np.float32(noise_sd) * np.sqrt(P.sum(axis=1, keepdims=True, dtype=np.float32))
        A += scale * rng.standard_normal(A.shape, dtype=np.float32)
    return P, A


@dataclass(frozen=True)
class Run:
    """One planted problem: the fraction of its columns found without and with counts."""

    clients: int
    rounds: int
    rate: float
    seed: int
    without_counts: float
    with_counts: float
    seconds_without: float
    seconds_with: float
    wrong: int


def frontier(args: argparse.Namespace) -> None:
    """Vary the rate and the rounds per client, without noise, beside projections with counts."""
    print(f"{'clients':>7} {'rounds':>6} {'rate':>5} {'no counts':>16} {'windows of 10':>16}")
    without = Blind(max_iterations=args.iterations)
    having = Projection(max_iterations=args.iterations, prove=False)
    for clients in args.clients:
        for per_client in args.rounds_per_client:
            for rate in args.rates:
                rounds = round(per_client * clients)
                pairs = []
                for seed in range(args.first_seed, args.first_seed + args.seeds):
                    P, A = planted(seed, clients=clients, rounds=rounds, rate=rate, dim=clients + 8)
                    sizes = P.sum(axis=1)
                    alone = DisaggregationProblem(A, None, num_clients=clients, cohort_sizes=sizes)
                    counted = DisaggregationProblem(A, windowed_counts(P, WINDOW), cohort_sizes=sizes)
                    blind = Score.measured(alone, without, P, seed)
                    known = Score.measured(counted, having, P, seed)
                    pairs.append((blind, known))
                    run = Run(
                        clients, rounds, rate, seed, blind.found, known.found, blind.seconds, known.seconds,
                        blind.wrong,
                    )  # fmt: skip
                    if args.out:
                        _add(run, args.out.with_suffix(".csv"))
                cells = [cell([pair[i] for pair in pairs]) for i in range(2)]
                print(f"{clients:>7} {rounds:>6} {rate:>5} {cells[0]:>16} {cells[1]:>16}", flush=True)
    if args.out:
        draw(_runs(args.out.with_suffix(".csv")), args.out.with_suffix(".svg"))


def _add(run: Run, table: Path) -> None:
    new = not table.exists()
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(run)), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(run).items()})


def _runs(table: Path) -> list[Run]:
    whole = {"clients", "rounds", "seed", "wrong"}
    with table.open(newline="", encoding="utf-8") as file:
        return [
            Run(**{k: int(v) if k in whole else float(v) for k, v in row.items()})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


def draw(runs: Sequence[Run], picture: Path) -> None:
    """Plot columns found against rounds per client: a panel for each number of clients and each rate."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams |= {"svg.hashsalt": "fedsim", "svg.fonttype": "none"}  # the same runs give the same bytes
    clients, rates = sorted({run.clients for run in runs}), sorted({run.rate for run in runs})
    figure = Figure(figsize=(2.6 * len(rates), 2.1 * len(clients)), layout="constrained")
    panels = figure.subplots(len(clients), len(rates), sharex=True, sharey=True, squeeze=False)
    for panel, (number, rate) in zip(panels.flat, itertools.product(clients, rates), strict=True):
        mine = [run for run in runs if (run.clients, run.rate) == (number, rate)]
        x = sorted({run.rounds for run in mine})
        for name, style in (("without_counts", "o-"), ("with_counts", "x:")):
            y = [np.mean([getattr(run, name) for run in mine if run.rounds == rounds]) for rounds in x]
            panel.plot(
                [rounds / number for rounds in x], y, style, label=name.replace("_", " "), clip_on=False
            )
        panel.set(title=f"{number} clients, rate {rate:g}", xscale="log", ylim=(0, 1))
        panel.set_xticks([1, 1.5, 2, 3, 4, 6], ["1", "1.5", "2", "3", "4", "6"])
        panel.set_xticks([], minor=True)
        panel.grid(alpha=0.3)
    figure.supxlabel("rounds per client")
    figure.supylabel("columns recovered")
    panels[0, -1].legend(fontsize=8, loc="lower right")
    figure.savefig(picture, metadata={"Date": None})


def noise(args: argparse.Namespace) -> None:
    """Vary the noise per participant on Gaussian updates of 2000 entries, rate .1."""
    print(f"{'clients':>7} {'rounds':>6} " + " ".join(f"{f'sd {sd}':>14}" for sd in args.noise_sd))
    for clients in args.clients:
        for per_client in args.rounds_per_client:
            rounds = round(per_client * clients)
            cells = []
            for sd in args.noise_sd:
                scores = []
                for seed in range(args.first_seed, args.first_seed + args.seeds):
                    P, A = planted(seed, clients=clients, rounds=rounds, rate=0.1, dim=2000, noise_sd=sd)
                    problem = DisaggregationProblem(A, None, num_clients=clients, cohort_sizes=P.sum(axis=1))
                    scores.append(Score.measured(problem, Blind(), P, seed))
                cells.append(cell(scores))
            print(f"{clients:>7} {rounds:>6} " + " ".join(f"{c:>14}" for c in cells), flush=True)


def fedavg(args: argparse.Namespace) -> None:
    """Attack the first rounds of transcripts of real training."""
    from fedsim.records import Transcript
    from fedsim.trusted.truth import Truth

    print(f"{'run':>12} {'rounds':>6} {'found':>5} {'sure':>5} {'wrong of sure':>14} {'CPU s':>6}")
    for folder in args.runs:
        transcript, truth = Transcript.load(folder / "transcript"), Truth.load(folder / "truth")
        for rounds in args.rounds:
            P = np.asarray(truth.participation[:rounds], dtype=np.uint8)
            problem = DisaggregationProblem(
                transcript.aggregates[:rounds],
                None,
                num_clients=P.shape[1],
                cohort_sizes=transcript.cohort_sizes[:rounds],
            )
            began = time.process_time()
            recovery = disaggregate(problem, "blind", rng=np.random.default_rng(rounds))
            score = Score.of(recovery, P, time.process_time() - began)
            sure = int((recovery.confidence > HIGH_CONFIDENCE).sum())
            print(
                f"{folder.name:>12} {rounds:>6} {score.found:>5.2f} {sure:>5} {score.wrong:>14}"
                f" {score.seconds:>6.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", choices=["frontier", "noise", "fedavg"])
    parser.add_argument("runs", type=Path, nargs="*", help="run folders, for fedavg")
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--rounds-per-client", type=float, nargs="+", default=[2, 3, 4, 6])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.4])
    parser.add_argument("--noise-sd", type=float, nargs="+", default=[0.5, 1.0, 1.5])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=4000)
    parser.add_argument("--rounds", type=int, nargs="+", default=[150, 200, 300])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    {"frontier": frontier, "noise": noise, "fedavg": fedavg}[args.table](args)


if __name__ == "__main__":
    main()

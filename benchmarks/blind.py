"""How many rounds the `blind` solver needs: the fraction of columns recovered with no counts at all.

    python -m benchmarks.blind frontier --clients 64 --rounds-per-client 1.5 2 3 --out docs/blind-frontier
    python -m benchmarks.blind noise --clients 100 --rounds-per-client 3 4 6
    python -m benchmarks.blind fedavg runs/fixed runs/moving --rounds 150 200 300 400

Every cell is the mean over seeds of the fraction of columns recovered, in brackets the CPU seconds of a run;
`!n` says that n columns with a confidence above .95 were wrong. Next to it stands the `projection` solver
with exact counts over windows of 10 rounds. `--out` adds every run to a table (.csv) and draws all that the
table holds (.svg). `fedavg` looks for the columns in growing parts of a run's transcript.
"""

from __future__ import annotations

import argparse
import csv
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
SURE = 0.95


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
        """A recovery made and timed."""
        began = time.process_time()
        recovery = disaggregate(problem, solver, rng=np.random.default_rng(seed))
        return cls.of(recovery, truth, time.process_time() - began)

    @classmethod
    def of(cls, recovery: Recovery, truth: NDArray[np.uint8], seconds: float) -> Score:
        """Columns count once, wherever they stand; `seconds` of CPU time."""
        true = {column.tobytes() for column in np.ascontiguousarray(truth.T)}
        columns = [column.tobytes() for column in np.ascontiguousarray(recovery.participation.T)]
        wrong = sum(
            c not in true and sure > SURE for c, sure in zip(columns, recovery.confidence, strict=True)
        )
        return cls(len(true & set(columns)) / len(true), wrong, seconds)


def cell(scores: list[Score]) -> str:
    found, seconds = (float(np.mean([getattr(s, name) for s in scores])) for name in ("found", "seconds"))
    wrong = sum(s.wrong for s in scores)
    return f"{found:.2f} ({seconds:.1f}s)" + (f" !{wrong}" if wrong else "")


def planted(
    seed: int, *, clients: int, rounds: int, rate: float, dim: int, noise_sd: float = 0.0
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Bernoulli participation and the sums of Gaussian updates; each participant brings its own noise."""
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < rate).astype(np.uint8)
    A = P.astype(np.float32) @ rng.standard_normal((clients, dim), dtype=np.float32)
    if noise_sd:
        scale = np.float32(noise_sd) * np.sqrt(P.sum(axis=1, keepdims=True, dtype=np.float32))
        A += scale * rng.standard_normal(A.shape, dtype=np.float32)
    return P, A


@dataclass(frozen=True)
class Run:
    """One planted problem: what is found of its columns without and with counts."""

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
    """Without noise: rate by rounds per client, beside the projections that have counts."""
    print(f"{'clients':>7} {'rounds':>6} {'rate':>5} {'no counts':>16} {'windows of 10':>16}")
    solvers = Blind(max_iterations=args.iterations), Projection(max_iterations=args.iterations, prove=False)
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
                    blind, known = (
                        Score.measured(problem, solver, P, seed)
                        for problem, solver in zip((alone, counted), solvers, strict=True)
                    )
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
    """Columns found by rounds per client: a panel for every number of clients, a colour for every rate."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "fedsim"  # the same runs give the same bytes
    clients = sorted({run.clients for run in runs})
    figure = Figure(figsize=(4.6 * len(clients), 3.2), layout="constrained")
    panels = figure.subplots(1, len(clients), sharey=True, squeeze=False)[0]
    for panel, number in zip(panels, clients, strict=True):
        mine = [run for run in runs if run.clients == number]
        for colour, rate in enumerate(sorted({run.rate for run in mine})):
            for name, style in (("without_counts", "o-"), ("with_counts", "x:")):
                found: dict[float, list[float]] = {}
                for run in mine:
                    if run.rate == rate:
                        found.setdefault(run.rounds / number, []).append(getattr(run, name))
                x = sorted(found)
                label = f"rate {rate:g}, {name.replace('_', ' ')}"
                panel.plot(x, [np.mean(found[at]) for at in x], style, color=f"C{colour}", label=label)
        panel.set(title=f"{number} clients", xlabel="rounds per client", xscale="log", ylim=(-0.03, 1.03))
        ticks = sorted({run.rounds / number for run in mine})
        panel.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks], minor=False)
        panel.set_xticks([], minor=True)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("columns recovered")
    panels[-1].legend(fontsize=7, loc="lower right")
    figure.savefig(picture, metadata={"Date": None})


def noise(args: argparse.Namespace) -> None:
    """Gaussian updates of 2000 entries with noise per participant, rate .1."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", choices=["frontier", "noise"])
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--rounds-per-client", type=float, nargs="+", default=[2, 3, 4, 6])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.4])
    parser.add_argument("--noise-sd", type=float, nargs="+", default=[0.5, 1.0, 1.5])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=4000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    {"frontier": frontier, "noise": noise}[args.table](args)


if __name__ == "__main__":
    main()

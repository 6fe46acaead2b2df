"""CPU time of the projections for all clients, beside mixed-integer programs for a sample of clients.

    python -m benchmarks.speed 128x256 256x512 [--sample 8] [--rate .1] [--out docs/disaggregation-speed]

Problems are planted, without noise, with windows of 10 rounds and known cohort sizes. All solvers get the
same space, and only ours is charged for its time. No solver proves anything. Gurobi and HiGHS get the first
`--sample` clients, one after the other; their time is extrapolated to all clients. Gurobi's free licence
ends at 2000 variables. `--out` adds the runs to a table (.csv) and draws the whole table (.svg).
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.solvers import AbstractSolver, Gurobi, Highs, Projection
from attacks.disaggregation.space.subspace import find_subspace
from benchmarks.disaggregation import Cell, plant, some_clients

COLUMNS = ("clients", "rounds", "rate", "solver", "sample", "right", "seconds_per_client")
Row = tuple[int, int, float, str, int, float, float]


def measure(clients: int, rounds: int, args: argparse.Namespace) -> list[Row]:
    problem, P = plant(Cell("S4", clients, rounds, args.rate, np.nan), args.seed)
    few = some_clients(problem, args.sample)
    began = time.process_time()
    subspace = find_subspace(problem, rng=np.random.default_rng(args.seed))
    basis = time.process_time() - began

    def row(problem: DisaggregationProblem, solver: AbstractSolver, before: float) -> Row:
        began = time.process_time()
        columns = solver.solve(Instance(problem, subspace), rng=np.random.default_rng(args.seed))
        seconds = before + time.process_time() - began
        number = len(problem.clients)
        right = (columns.participation == P[:, :number]).all(axis=0).mean()
        print(f"{clients:6d} {rounds:6d} {args.rate:5g} {solver.name:>10} {number:5d} {right:6.3f}"
              f" {seconds / number:10.4f} {seconds / number * clients:10.1f}", flush=True)  # fmt: skip
        return clients, rounds, args.rate, solver.name, number, float(right), seconds / number

    rows = [row(problem, Projection(prove=False), basis)]
    limit = {"time_limit_s": args.limit_s, "prove": False}
    others: list[AbstractSolver] = [Gurobi(**limit)] if rounds < 1000 else []
    for solver in (*others, Highs(**limit)):
        rows.append(row(few, solver, 0.0))
        print(f"{'':37} {rows[-1][-1] / rows[0][-1]:.0f} times ours", flush=True)
    return rows


def draw(rows: Sequence[dict[str, str]], picture: Path) -> None:
    """Plot CPU seconds per client against the size of the problem, a line per solver."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams |= {"svg.hashsalt": "fedsim", "svg.fonttype": "none"}  # the same rows give the same bytes
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    panel = figure.subplots()
    sizes = sorted({(int(row["clients"]), int(row["rounds"])) for row in rows})
    for solver, style in (("gurobi", "s-"), ("highs", "^-"), ("projection", "o-")):
        mine = [row for row in rows if row["solver"] == solver]
        x = sorted({sizes.index((int(row["clients"]), int(row["rounds"]))) for row in mine})
        y = [
            np.mean([float(r["seconds_per_client"]) for r in mine if int(r["clients"]) == sizes[i][0]])
            for i in x
        ]
        panel.plot(x, y, style, label=solver)
    panel.set_xticks(range(len(sizes)), [f"{clients} × {rounds}" for clients, rounds in sizes])
    panel.set(xlabel="clients × rounds", ylabel="CPU seconds per client", yscale="log")
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="+", help="CLIENTSxROUNDS")
    parser.add_argument("--sample", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    print("clients rounds  rate     solver  cols  right  s/client  s for all")
    for size in args.sizes:
        clients, rounds = map(int, size.split("x"))
        rows = measure(clients, rounds, args)
        if args.out:
            table = args.out.with_suffix(".csv")
            new = not table.exists()
            with table.open("a", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([COLUMNS, *rows] if new else rows)
            with table.open(newline="", encoding="utf-8") as file:
                draw(list(csv.DictReader(file)), args.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()

"""The paper's synthetic tables, cell by cell: the fraction of columns exactly right, beside the paper's.

    python -m benchmarks.disaggregation TABLES [--only S4 S5] [--seed 1] [--sample 2] [--max-rounds 4096]

TABLES is the folder with the paper's numbers as CSV files. Each cell is one planted problem with its own
seed; all clients are attacked at once in one process. The attacker sees the aggregates, the published counts
and the cohort sizes. `--sample` columns per cell also go to Gurobi and HiGHS (where Gurobi's size-limited
licence allows), to compare CPU times; 0 skips them.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analytics.report import ParticipationReport, windowed_counts
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Gurobi, Highs

TABLES = {
    "S2": ("tableS2_partial_counts.csv", "constraint_fraction"),
    "S3": ("tableS3_noisy_counts.csv", "count_noise"),
    "S4": ("tableS4_participation_rate.csv", "participation_rate"),
    "S5": ("tableS5_granularity.csv", "granularity"),
}
EXTRA_DIM = 32
"""Entries of an update beyond the number of clients. Without noise, more entries change nothing."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its settings, and the fraction that the paper recovered."""

    table: str
    clients: int
    rounds: int
    value: float
    paper: float

    @property
    def rate(self) -> float:
        """Chance of taking part in a round."""
        return self.value if self.table == "S4" else 0.1

    @property
    def window(self) -> int:
        """Rounds per count."""
        return int(self.value) if self.table == "S5" else 10


def cells(folder: Path, table: str) -> Iterator[Cell]:
    name, column = TABLES[table]
    with (folder / name).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield Cell(
                table,
                int(row["users"]),
                int(row["rounds"]),
                float(row[column]),
                float(row["fraction_recovered"]),
            )


def plant(cell: Cell, seed: int) -> tuple[DisaggregationProblem, np.ndarray]:
    key = [seed, cell.clients, cell.rounds, int(1000 * cell.value), int(cell.table[1])]
    rng = np.random.default_rng(key)
    P = (rng.random((cell.rounds, cell.clients)) < cell.rate).astype(np.uint8)
    G = rng.standard_normal((cell.clients, cell.clients + EXTRA_DIM))
    counts = released(windowed_counts(P, cell.window), cell, rng)
    return DisaggregationProblem(P @ G, counts, cohort_sizes=P.sum(axis=1, dtype=np.int64)), P


def released(report: ParticipationReport, cell: Cell, rng: np.random.Generator) -> ParticipationReport:
    if cell.table == "S2":
        hidden = rng.random(len(report.count)) >= cell.value
        return replace(report, count=np.where(hidden, np.nan, report.count))
    if cell.table == "S3":
        count = report.count + cell.value * rng.standard_normal(len(report.count))
        return replace(report, count=count, noise_sd=cell.value)
    return report


def some_clients(problem: DisaggregationProblem, number: int) -> DisaggregationProblem:
    """Return the same aggregates with the counts of the first clients only."""
    counts = problem.counts
    assert counts is not None
    few = counts.client < number
    report = ParticipationReport(
        counts.clients[:number], counts.client[few], counts.start[few], counts.stop[few], counts.count[few],
        counts.noise_sd,
    )  # fmt: skip
    return DisaggregationProblem(problem.aggregates, report, num_clients=len(counts.clients))


def timed(problem: DisaggregationProblem, solver: object, seed: int) -> tuple[Recovery, float]:
    began = time.process_time()
    recovery = disaggregate(problem, solver, rng=np.random.default_rng([seed, 7]))  # type: ignore[arg-type]
    return recovery, time.process_time() - began


def exact(recovery: Recovery, P: np.ndarray) -> np.ndarray:
    right = (recovery.participation == P[:, : recovery.participation.shape[1]]).all(axis=0)
    return np.asarray(right & (recovery.outcome != Outcome.UNRESOLVED))


def measure(cell: Cell, seed: int, sample: int, sample_limit_s: float) -> str:
    problem, P = plant(cell, seed)
    recovery, seconds = timed(problem, "auto", seed)
    right = exact(recovery, P)
    proved = recovery.outcome == Outcome.PROVED
    wrong = int(((recovery.outcome != Outcome.UNRESOLVED) & ~right).sum())
    line = (
        f"{cell.table} {cell.clients:5d} {cell.rounds:5d} {cell.value:5g} | {cell.paper:5.3f}"
        f" {right.mean():6.3f} {proved.mean():6.3f} | {wrong:3d} {int((proved & ~right).sum()):2d}"
        f" | {seconds:7.2f}"
    )
    if sample and cell.clients < cell.rounds <= 512:
        few = some_clients(problem, sample)
        for solver in (
            Gurobi(time_limit_s=sample_limit_s, prove=False),
            Highs(time_limit_s=sample_limit_s, prove=False),
        ):
            found, used = timed(few, solver, seed)
            line += f" | {solver.name} {exact(found, P).mean():4.2f}, {used / sample:.2f} s/column"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", type=Path)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--sample-limit-s", type=float, default=60.0)
    parser.add_argument("--min-rounds", type=int, default=0)
    parser.add_argument("--max-rounds", type=int, default=1 << 20)
    options = parser.parse_args()
    print("table, clients, rounds, value | paper, exact, proved | wrong, falsely proved | CPU s | MIP")
    for table in options.only:
        for cell in cells(options.tables, table):
            if options.min_rounds <= cell.rounds <= options.max_rounds:
                print(measure(cell, options.seed, options.sample, options.sample_limit_s), flush=True)


if __name__ == "__main__":
    main()

"""Is the confidence right? About nine in ten columns with confidence .9 should be right.

    python -m benchmarks.calibration [--problems 12] [--first-seed 1] [--only full half …] [--plot FILE.svg]

Plants small noisy problems: 24 clients × 96 rounds, 800 entries, norms from 1 to 2, noise per participant
from 1 to 4 times an update. Norms and noise are log-uniform, so some problems are easy and some hopeless.
The kinds are:

    full      counts over 8 rounds, rate .12;
    half      every other count is missing;
    coarse    counts over 16 rounds at the rate .3: hardly any window is empty;
    noisy     counts with errors of standard deviation .5;
    moving    updates drift: over all rounds the correlation falls to 1/e;
    few       no noise, but 64 clients × 96 rounds, rate .05, counts over 10 rounds: several columns may fit;
    fewer     the same with 72 rounds.

`auto` attacks each problem. For every kind the output lists columns by confidence: how many, their mean
confidence, and the fraction that is right.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytics import windowed_counts
from attacks.disaggregation import DisaggregationProblem, disaggregate

DIM, LEAST_NOISE, MOST_NOISE = 800, 1.0, 4.0
BIN_EDGES = (0.0, 0.2, 0.5, 0.8, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Kind:
    """How the participation, counts and updates of a problem are drawn."""

    clients: int = 24
    rounds: int = 96
    rate: float = 0.12
    window: int = 8
    noise: bool = True
    known: float = 1.0
    count_sd: float = 0.0
    drift: float = 0.0


KINDS = {
    "full": Kind(),
    "half": Kind(known=0.5),
    "coarse": Kind(rate=0.3, window=16),
    "noisy": Kind(count_sd=0.5),
    "moving": Kind(drift=1.0),
    "few": Kind(64, 96, rate=0.05, window=10, noise=False),
    "fewer": Kind(64, 72, rate=0.05, window=10, noise=False),
}


def planted(kind: Kind, rng: np.random.Generator) -> tuple[DisaggregationProblem, NDArray[np.uint8]]:
    """Return a problem and its true participation."""
    sd = np.exp(rng.uniform(np.log(LEAST_NOISE), np.log(MOST_NOISE)))
    P = (rng.random((kind.rounds, kind.clients)) < kind.rate).astype(np.uint8)
    norm = np.exp(rng.uniform(0, np.log(2), (kind.clients, 1)))
    G = norm * rng.standard_normal((kind.clients, DIM))
    keep = np.exp(-kind.drift / kind.rounds)
    A = np.empty((kind.rounds, DIM))
    for r in range(kind.rounds):
        A[r] = P[r] @ G
        if kind.drift:
            G = keep * G + np.sqrt(1 - keep**2) * norm * rng.standard_normal(G.shape)
    sizes = P.sum(axis=1)
    if kind.noise:
        A += sd * np.sqrt(sizes)[:, None] * rng.standard_normal(A.shape)
    report = windowed_counts(P, kind.window)
    count = report.count + kind.count_sd * rng.standard_normal(len(report.count))
    count[rng.random(len(count)) >= kind.known] = np.nan
    return DisaggregationProblem(
        A, replace(report, count=count, noise_sd=kind.count_sd), cohort_sizes=sizes
    ), P


def measured(
    name: str, seeds: Sequence[int], solver: str = "auto"
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the confidence of every column in the problems of a kind, and whether it is right."""
    confidence, right = [], []
    for seed in seeds:
        problem, P = planted(KINDS[name], np.random.default_rng([seed, list(KINDS).index(name)]))
        recovery = disaggregate(problem, solver, rng=np.random.default_rng(seed))
        confidence.append(recovery.confidence)
        right.append((recovery.participation == P).all(axis=0))
    return np.concatenate(confidence), np.concatenate(right)


def bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> list[tuple[str, int, float, float]]:
    """Return, for each occupied bin of confidence: name, columns, mean confidence, fraction right."""
    rows = []
    for low, high in itertools.pairwise(BIN_EDGES):
        chosen = (confidence >= low) & ((confidence < high) | (high == 1))
        if chosen.any():
            rows.append(
                (
                    f"{low:.2f} – {high:.2f}",
                    int(chosen.sum()),
                    float(confidence[chosen].mean()),
                    float(right[chosen].mean()),
                )
            )
    return rows


def plot(results: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name, (confidence, right) in results.items():
            rows = bins(confidence, right)
            mean, share = [row[2] for row in rows], [row[3] for row in rows]
            (line,) = axes.plot(mean, share, linewidth=0.8, label=name)
            axes.scatter(mean, share, s=[6 + row[1] for row in rows], color=line.get_color(), alpha=0.7)
        axes.set(xlabel="confidence (mean of a bin)", ylabel="fraction of columns right")
        axes.legend(frameon=False, title="area: columns")
        figure.savefig(file, format="svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.problems)
    results = {}
    for name in options.only:
        results[name] = measured(name, seeds, options.solver)
        confidence, right = results[name]
        print(f"{name}: {right.mean():.3f} right, mean confidence {confidence.mean():.3f}")
        for level, columns, mean, share in bins(confidence, right):
            print(f"  {level}  {columns:5}  {mean:5.2f}  {share:5.2f}", flush=True)
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    main()

"""Recovery from noisy sums: the fraction of columns exactly right, and whether the confidence is right.

    python -m benchmarks.noise [--seeds 10] [--first-seed 1] [--updates iid mean low-rank norms] [--louder 1]

Each cell plants `--seeds` problems of 100 clients × 200 rounds (rate .1, counts per 10 rounds, cohort sizes
known). The entries of a client's own update have standard deviation 1. Each participant adds independent
noise with the standard deviation of the cell, times `--louder`. Updates are

    iid       independent;
    mean      plus a mean that all clients share, three times as large;
    low-rank  plus ten directions that all clients share with their own weights, each as large;
    norms     scaled by a factor of 1 to 3, log-uniform over the clients.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from analytics import windowed_counts
from attacks.disaggregation import DisaggregationProblem, disaggregate

CLIENTS, ROUNDS, RATE, WINDOW = 100, 200, 0.1, 10
NOISE = {500: 0.5, 2_000: 1.2, 10_000: 2.0, 62_006: 3.5}
"""Standard deviation of the noise per participant, by the number of entries of an update."""
BIN_EDGES = (0.0, 0.5, 0.8, 0.95, 0.99, 0.999, 1.0)

Array = NDArray[np.float64]
UPDATES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "iid": lambda own, rng: own,
    "mean": lambda own, rng: own + 3 * rng.standard_normal(own.shape[1]),
    "low-rank": lambda own, rng: (
        own + rng.standard_normal((len(own), 10)) @ rng.standard_normal((10, own.shape[1]))
    ),
    "norms": lambda own, rng: own * np.exp(rng.uniform(0, np.log(3), (len(own), 1))),
}


def planted(updates: str, dim: int, sd: float, seed: int) -> tuple[DisaggregationProblem, NDArray[np.uint8]]:
    rng = np.random.default_rng([seed, dim, list(UPDATES).index(updates)])
    P = (rng.random((ROUNDS, CLIENTS)) < RATE).astype(np.uint8)
    G = UPDATES[updates](rng.standard_normal((CLIENTS, dim)), rng)
    sizes = P.sum(axis=1)
    noise = rng.standard_normal((ROUNDS, dim), dtype=np.float32)
    A = (P @ G).astype(np.float32) + (sd * np.sqrt(sizes)[:, None]).astype(np.float32) * noise
    return DisaggregationProblem(A, windowed_counts(P, WINDOW), cohort_sizes=sizes), P


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--updates", nargs="+", choices=UPDATES, default=list(UPDATES))
    parser.add_argument("--dims", nargs="+", type=int, choices=NOISE, default=list(NOISE))
    parser.add_argument("--louder", type=float, default=1.0)
    options = parser.parse_args()
    rights, confidences = [], []
    print("updates    dim     sd    exact  worst  cpu s")
    for updates, dim in itertools.product(options.updates, options.dims):
        sd, exact, seconds = options.louder * NOISE[dim], [], []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            problem, truth = planted(updates, dim, sd, seed)
            began = time.process_time()
            recovery = disaggregate(problem, "message_passing", rng=np.random.default_rng(seed))
            seconds.append(time.process_time() - began)
            right = (recovery.participation == truth).all(axis=0)
            exact.append(right.mean())
            rights.append(right)
            confidences.append(recovery.confidence)
        found = f"{np.mean(exact):6.4f} {np.min(exact):6.2f} {np.mean(seconds):6.1f}"
        print(f"{updates:9} {dim:6} {sd:5.2f}   {found}", flush=True)
    reliability(np.concatenate(rights), np.concatenate(confidences))


def reliability(right: NDArray[np.bool_], confidence: Array) -> None:
    print("\nconfidence      columns  mean confidence  right")
    for low, high in itertools.pairwise(BIN_EDGES):
        chosen = (confidence >= low) & ((confidence < high) | (high == 1))
        if chosen.any():
            print(
                f"{low:5.3f} – {high:5.3f} {chosen.sum():9} {confidence[chosen].mean():13.3f} "
                f"{right[chosen].mean():9.3f}"
            )


if __name__ == "__main__":
    main()

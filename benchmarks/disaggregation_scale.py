"""How large can a federation be? Time and memory for all clients at rate .1 and windows of 10.

python -m benchmarks.disaggregation_scale CLIENTS ROUNDS [--seed 1] [--prove]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from analytics.report import windowed_counts
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.solvers import Projection


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clients", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prove", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng([options.seed, options.clients, options.rounds])
    P = rng.random((options.rounds, options.clients)) < 0.1
    # Twice as many entries as clients: a square matrix of random updates is nearly singular. Real updates
    # are longer.
    A = P.astype(np.float32) @ rng.standard_normal((options.clients, 2 * options.clients), dtype=np.float32)
    problem = DisaggregationProblem(A, windowed_counts(P, 10), cohort_sizes=P.sum(axis=1, dtype=np.int64))
    wall, cpu = time.perf_counter(), time.process_time()
    recovery = disaggregate(problem, Projection(prove=options.prove), rng=rng)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    exact = (recovery.participation == P).all(axis=0).mean()
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    proved = (recovery.outcome == "proved").mean()
    print(
        f"{options.clients} clients × {options.rounds} rounds: exact {exact:.4f}, proved {proved:.4f},"
        f" CPU {cpu:.1f} s, wall {wall:.1f} s, peak memory {peak_gb:.2f} GB"
    )


if __name__ == "__main__":
    main()

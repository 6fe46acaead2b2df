"""How many rounds the `blind` solver needs: the fraction of columns recovered with no counts at all.

    python -m benchmarks.blind frontier --clients 64 128 --rounds-per-client 2 3 4 6
    python -m benchmarks.blind noise --clients 100 --rounds-per-client 3 4 6

Every cell is the mean over seeds of the fraction of columns recovered, and in brackets the seconds of one
run; `!n` says that n columns with a confidence above .95 were wrong (none are expected). Next to it stands
the `projection` solver with exact counts over windows of 10 rounds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.report import windowed_counts
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.solvers import Blind, Projection

WINDOW = 10
SURE = 0.95


@dataclass(frozen=True)
class Score:
    """One recovery against the truth."""

    found: float
    wrong: int
    seconds: float

    @classmethod
    def of(cls, recovery: Recovery, truth: NDArray[np.uint8]) -> Score:
        """Columns count once, wherever they stand."""
        true = {column.tobytes() for column in np.ascontiguousarray(truth.T)}
        columns = [column.tobytes() for column in np.ascontiguousarray(recovery.participation.T)]
        wrong = sum(
            c not in true and sure > SURE for c, sure in zip(columns, recovery.confidence, strict=True)
        )
        return cls(len(true & set(columns)) / truth.shape[1], wrong, recovery.seconds)


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


def frontier(args: argparse.Namespace) -> None:
    """Without noise: rate by rounds per client, beside the projections that have counts."""
    blind = Blind(max_iterations=args.iterations)
    print(f"{'clients':>7} {'rounds':>6} {'rate':>5} {'no counts':>16} {'windows of 10':>16}")
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
                    pairs.append(
                        [
                            Score.of(disaggregate(problem, solver, rng=np.random.default_rng(seed)), P)
                            for problem, solver in ((alone, blind), (counted, Projection()))
                        ]
                    )
                cells = [cell([pair[i] for pair in pairs]) for i in range(2)]
                print(f"{clients:>7} {rounds:>6} {rate:>5} {cells[0]:>16} {cells[1]:>16}", flush=True)


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
                    recovery = disaggregate(problem, "blind", rng=np.random.default_rng(seed))
                    scores.append(Score.of(recovery, P))
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
    args = parser.parse_args()
    {"frontier": frontier, "noise": noise}[args.table](args)


if __name__ == "__main__":
    main()

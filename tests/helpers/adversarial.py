"""Planted problems that break one or two assumptions of a proof, to see whether proofs notice.

A *weakness* leaves a client without a column of its own in the sums: it sends zeros, or what another client
sends. A *filler* puts something into the sums that no listed client sent. Each of the two shows in the rank
of the sums; both together restore the rank by coincidence, which is the hardest case for a proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analytics.report import windowed_counts
from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.solvers import Blind, Gurobi, Highs, Projection, Solver
from scenarios.planted import blurred

WEAKNESSES = (
    "zero", "equal", "negative", "dependent", "affine", "tiny", "nearly equal", "duplicate", "complement",
)  # fmt: skip
FILLERS = ("hidden", "namesake", "stray", "outlier", "offset", "half", "lost")
FAMILIES = (
    ("plain",),
    *((weakness,) for weakness in WEAKNESSES),
    *((filler,) for filler in FILLERS),
    *((weakness, filler) for weakness in WEAKNESSES for filler in FILLERS),
)
"""Every weakness and every filler alone, and every pair of them."""
SOLVERS: dict[str, Solver] = {
    "projection": Projection(max_iterations=100),
    "highs": Highs(),
    "gurobi": Gurobi(),
    "blind": Blind(max_iterations=100),
}
"""Solvers that can prove. Their searches are short: a column that nobody finds is no false proof."""


@dataclass(frozen=True)
class Adversarial:
    """A problem, the true `participation` (rounds, K) in its sums, and the family that it belongs to."""

    family: tuple[str, ...]
    problem: DisaggregationProblem
    participation: NDArray[np.uint8]


def adversarial(family: tuple[str, ...], seed: int) -> Adversarial:
    """A small problem of the family: 3 to 9 clients, of which client 0 has the weakness.

    Rates, windows, missing counts, precision and whether cohort sizes are known vary with the seed. A hidden
    client is in the cohort sizes, as in the sums, and not in the counts; a stray update is in the sums alone.
    """
    rng = np.random.default_rng([seed, *map(ord, "+".join(family))])
    K = int(rng.integers(3, 10))
    rounds = int(rng.integers(K + 2, 4 * K + 3))
    window = int(rng.choice([2, 4, 4, rounds // 2, rounds]))
    P = (rng.random((rounds, K)) < rng.choice([0.15, 0.3, 0.5])).astype(np.uint8)
    G = rng.standard_normal((K, K + 6))
    for name in family:
        _weaken(name, P, G, rng)
    counts = windowed_counts(P, window)
    if rng.random() < 0.25:
        some = blurred(counts, rng, known=0.7)
        counts = counts if np.isnan(some.count).all() else some
    A, sizes = P @ G, P.sum(axis=1, dtype=np.int64)
    for name in family:
        if name in ("hidden", "namesake"):
            h = _hidden_column(P, window, rng, namesake=name == "namesake")
            A += np.outer(h, rng.standard_normal(A.shape[1]))
            sizes += h
        elif name == "stray":
            A += np.outer(rng.random(rounds) < P.mean(), rng.standard_normal(A.shape[1]))
        elif name == "outlier":
            A[rng.integers(rounds)] += rng.standard_normal(A.shape[1])
        elif name == "offset":
            A += rng.standard_normal(A.shape[1])
        elif name == "half":
            A = A.astype(np.float16)
        elif name == "lost":
            lost = rng.permutation(np.argwhere(P))[: rng.integers(1, 3)]
            for t, k in lost:
                A[t] -= G[k]
                P[t, k], sizes[t] = 0, sizes[t] - 1
    if rng.random() < 0.5:
        A = A.astype(min(A.dtype, np.dtype(np.float32)))
    problem = DisaggregationProblem(A, counts, num_clients=K + 1 if sizes.max() > K else None)
    if rng.random() < 0.6:
        problem = replace(problem, cohort_sizes=sizes)
    return Adversarial(family, problem, P)


def problems(number: int, first_seed: int = 0) -> Iterator[Adversarial]:
    """So many problems, one family after the other."""
    for i in range(number):
        yield adversarial(FAMILIES[i % len(FAMILIES)], first_seed + i // len(FAMILIES))


def _weaken(name: str, P: NDArray[np.uint8], G: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Give client 0 the weakness, in place."""
    match name:
        case "zero":
            G[0] = 0
        case "equal":
            G[0] = G[1]
        case "negative":
            G[0] = -G[1]
        case "dependent":
            G[0] = G[1] + G[2]
        case "affine":
            G[0] = (G[1] + G[2]) / 2
        case "tiny":
            G[0] *= 10.0 ** -rng.integers(4, 12)
        case "nearly equal":
            G[0] = G[1] + 10.0 ** -rng.integers(4, 12) * G[0]
        case "duplicate":
            P[:, 0] = P[:, 1]
        case "complement":
            P[:, 0] = 1 - P[:, 1]


def _hidden_column(
    P: NDArray[np.uint8], window: int, rng: np.random.Generator, *, namesake: bool
) -> NDArray[np.uint8]:
    """(rounds,) a client that is not in the counts; a namesake would have the same counts as client 0."""
    if not namesake:
        return np.asarray(rng.random(len(P)) < P.mean(), dtype=np.uint8)
    parts = np.split(P[:, 0], np.arange(window, len(P), window))
    return np.concatenate([rng.permutation(part) for part in parts], dtype=np.uint8)

"""Columns from drifting sums without any counts: annealing with a number of clients that is found on the way.

The search has drift in its model (`annealing`), while the other searches without counts take drift for noise.
It may be given more clients than there are: their columns stay empty, because the sums leave them nothing to
explain. With too few clients every column is used, and some are mixtures. So the number grows until a column
stays empty. Replicas vote on the columns.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise.annealing import Evidence, annealed
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation
from attacks.disaggregation.noise.known_participation import fitted
from attacks.disaggregation.noise.round_model import RoundModel
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.gram_corrections import level_rounds
from attacks.disaggregation.space.whitening import whitened_gram
from fedsim.core.progress import Progress

GROWTH = 1.3
"""Factor of the number of clients as long as every column is used."""
SURPLUS = 1.05
"""Factor of the first guess: the end of the spectrum is off by a few."""
LARGEST_SHARE = 0.8
"""Most clients relative to the rounds: with more, nothing could be told apart."""
OUTLIERS = 2.0
"""Eigenvalues this many times as large as a typical one belong to what all clients share."""


def first_guess(problem: DisaggregationProblem) -> int:
    """A number of clients: where the spectrum of the whitened sums falls most steeply."""
    sizes = np.asarray(problem.cohort_sizes, dtype=np.float64)
    shapes = problem.layer_shapes or ((problem.dim,),)
    gram, _ = level_rounds(whitened_gram(problem.aggregates, sizes, shapes), sizes)
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], np.finfo(np.float64).tiny)
    ends = np.arange(max(int(sizes.max()), 1), max(_most(problem), int(sizes.max()) + 1))
    return math.ceil(SURPLUS * int(ends[(values[ends - 1] / values[ends]).argmax()]))


def _most(problem: DisaggregationProblem) -> int:
    return int(LARGEST_SHARE * problem.rounds)


def nameless_columns(
    problem: DisaggregationProblem,
    *,
    replicas: int,
    cooling: float,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Columns (n, rounds) in any order, none of them empty, and (n,) the share of the replicas with each.

    The columns are those of the replica under which the sums are likeliest. `problem` has cohort sizes and no
    counts.
    """
    known, clients = problem.num_clients is not None, problem.num_clients or first_guess(problem)
    found: list[NDArray[np.uint8]] = []
    misfits: list[float] = []
    evidence, start, energy = _prepared(replace(problem, num_clients=clients))
    while len(found) < replicas:
        progress(len(found), replicas)
        columns, _ = annealed(evidence, start, cooling=cooling, rng=rng.spawn(1)[0])
        used = columns[columns.any(axis=1)]
        if not known and len(used) == clients < _most(problem):
            clients = min(math.ceil(GROWTH * clients), _most(problem))
            evidence, start, energy = _prepared(replace(problem, num_clients=clients))
            found, misfits = [], []
            continue
        found.append(np.unique(used, axis=0))
        given = start.given(columns.T.astype(np.float64), evidence.cohort_sizes)
        misfits.append(fitted(given, energy).misfit())
    progress(replicas, replicas)
    best = found[int(np.argmin(misfits))]
    same = [np.array([(column == other).all(axis=1).any() for column in best]) for other in found]
    return best, np.mean(same, axis=0)


def _prepared(problem: DisaggregationProblem) -> tuple[Evidence, RoundModel, NDArray[np.float64]]:
    """Evidence, model at the start, and energy (R,) of the rounds, for a given number of clients."""
    every = np.ones(len(problem.clients), dtype=np.bool_)
    passing = BeliefPropagation(problem, every, iterations=1, damping=0.0)
    evidence = Evidence(problem.windows, passing.prior.T, passing.cohort_sizes)
    start = passing.start(OUTLIERS, moving=True)
    return evidence, passing.model(start), start.observations.energy

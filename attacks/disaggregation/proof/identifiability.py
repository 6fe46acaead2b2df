"""What the data of a problem can tell at all, before anybody searches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.subspace import Subspace


def determined(problem: DisaggregationProblem) -> NDArray[np.bool_]:
    """(K,) clients whose exact counts fix every entry: all windows empty or full."""
    return np.asarray(~np.isnan(problem.windows.known()).any(axis=1))


def out_of_reach(problem: DisaggregationProblem, subspace: Subspace) -> NDArray[np.bool_]:
    """(K,) clients for whom there is nothing to search: settled by counts, or too few rounds for anyone."""
    if subspace.rank == 0 or problem.rounds <= active_clients(problem, subspace):
        return np.ones(len(problem.clients), dtype=np.bool_)
    return determined(problem)


def active_clients(problem: DisaggregationProblem, subspace: Subspace) -> int:
    """Number of clients that can have taken part: all but those whose counts say never."""
    return subspace.num_clients - int((np.nan_to_num(problem.windows.known(), nan=1) == 0).all(axis=1).sum())


def holds_all(problem: DisaggregationProblem, subspace: Subspace) -> bool:
    """Whether the space is sure to hold every client's column.

    If A's rank is the number of clients that can have taken part, then col A = col P.
    """
    return subspace.rank == active_clients(problem, subspace)

"""A problem prepared for an attack: everything that follows from it before a search starts, computed once.

Solvers, proofs and enumeration take an `Instance` instead of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.space.subspace import Subspace, find_subspace
from attacks.disaggregation.sparse.traces import Traces, find_traces


@dataclass(frozen=True, eq=False)
class Instance:
    """A checked `problem` with K columns to find, and the `subspace` of its aggregates.

    Arrays are shared between all users of the instance: nobody changes them in place.
    """

    problem: DisaggregationProblem
    subspace: Subspace

    @classmethod
    def prepare(cls, problem: DisaggregationProblem, *, rng: np.random.Generator) -> Instance:
        """Find the column space, which reads all aggregates."""
        return cls(problem, find_subspace(problem, rng=rng))

    @property
    def windows(self) -> Windows:
        """The counts as disjoint windows."""
        return self.problem.windows

    @property
    def rounds(self) -> int:
        """Number of sums."""
        return self.problem.rounds

    @property
    def num_columns(self) -> int:
        """K: clients of the problem that get a column."""
        return len(self.problem.clients)

    @property
    def exact(self) -> bool:
        """Whether neither the sums nor the counts have noise. Only then is a proof possible."""
        return self.subspace.exact and self.windows.exact

    @cached_property
    def traces(self) -> Traces | None:
        """Which rows of the model moved when; None if the sums have no rows that stand still now and then."""
        return find_traces(self.problem)

    @cached_property
    def known(self) -> NDArray[np.float32]:
        """(K, rounds) entries that the exact counts fix: 0 or 1; NaN elsewhere."""
        return self.windows.known()

    @cached_property
    def expected(self) -> NDArray[np.float64]:
        """(K, rounds) probability of taking part by the counts; the overall rate where there are none."""
        return self.windows.expected()

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """(K,) clients whose exact counts fix every entry: all windows are empty or full."""
        return np.asarray(~np.isnan(self.known).any(axis=1))

    @cached_property
    def active_clients(self) -> int:
        """Number of clients that can have taken part: all but those whose counts say never."""
        never = (np.nan_to_num(self.known, nan=1) == 0).all(axis=1)
        return self.subspace.num_clients - int(never.sum())

    @property
    def underdetermined(self) -> bool:
        """Whether nobody can be recovered: the sums are zero, or there are not more rounds than clients."""
        return self.subspace.rank == 0 or self.rounds <= self.active_clients

    @property
    def out_of_reach(self) -> NDArray[np.bool_]:
        """(K,) clients for whom a search is pointless: counts settle the column, or rounds are too few."""
        if self.underdetermined:
            return np.ones(self.num_columns, dtype=np.bool_)
        return self.determined

    @property
    def searchable(self) -> NDArray[np.intp]:
        """The other clients, as positions among the K."""
        return np.flatnonzero(~self.out_of_reach)

    @property
    def holds_all_columns(self) -> bool:
        """Whether the space is sure to hold every client's column.

        If A's rank is the number of clients that can have taken part, then col A = col P.
        """
        return self.subspace.rank == self.active_clients

    @property
    def covers_everyone(self) -> bool:
        """Whether every client in the sums has a column here, so that columns add up to the cohort sizes."""
        return self.subspace.num_clients == self.windows.clients

    def sharpened(self) -> Instance:
        """The same with the column space as precise as the aggregates allow, for proofs."""
        sharp = self.subspace.sharpened()
        return self if sharp is self.subspace else replace(self, subspace=sharp)

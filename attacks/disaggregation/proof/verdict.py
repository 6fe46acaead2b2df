"""From candidate columns to outcomes. A verdict trusts no solver: it checks every column again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.rivals import Rivals
from attacks.disaggregation.proof.assumptions import withdraw_unconfirmed
from attacks.disaggregation.proof.certificate import unique
from attacks.disaggregation.proof.settling import (
    LIKELY_FROM,
    MEETS_ALL,
    Verdict,
    settle_by_enumeration,
    settle_duplicates,
)
from attacks.disaggregation.recovery import UNKNOWN, Columns, Outcome
from attacks.disaggregation.space.flips import unit_distances
from attacks.disaggregation.space.subspace import Subspace
from attacks.disaggregation.workers import BlockWorkers, Threads

INSIDE_DISTANCE = 1e-3
"""Largest distance of a column of norm 1 that counts as inside an exact space (in addition to its angle)."""
LARGEST_INSIDE_SQUARED = 0.05
"""Largest squared distance of any column that counts as inside an exact space."""
LIKELY_RESIDUAL = 0.3
"""Under noise: largest distance² of a likely column, relative to a random column with the same counts. Wrong
columns at which a solver ends are at about twice this; right ones stay below it until the method fails."""


@dataclass(eq=False)
class Candidates:
    """The best column so far of every client: `columns` (K, rounds) uint8, UNKNOWN at first.

    `distance` (K,) is its squared distance from the space. `proved` (K,) marks columns for which the solver's
    own bound excludes all others. `reason` (K,) is the solver's explanation where it failed.
    """

    columns: NDArray[np.uint8]
    distance: NDArray[np.float64]
    proved: NDArray[np.bool_]
    reason: NDArray[np.object_]

    @classmethod
    def none(cls, instance: Instance) -> Candidates:
        """Nothing found yet."""
        K = instance.num_columns
        return cls(
            np.full((K, instance.rounds), UNKNOWN, dtype=np.uint8),
            np.full(K, np.inf),
            np.zeros(K, dtype=np.bool_),
            np.full(K, "", dtype=object),
        )

    def offer(
        self, clients: NDArray[np.intp], columns: NDArray[np.generic], distance: NDArray[np.float64]
    ) -> bool:
        """Keep the rows that are nearer than their clients' columns so far; return whether there are any."""
        order = np.argsort(-distance, kind="stable")  # a client may have several rows: its nearest comes last
        order = order[distance[order] < self.distance[clients[order]]]
        self.columns[clients[order]] = columns[order]
        self.distance[clients[order]] = distance[order]
        return bool(len(order))


def resolved(instance: Instance, found: Candidates) -> NDArray[np.bool_]:
    """(K,) clients with a column that lies in an exact space and is not zero."""
    return _inside(instance.subspace, found.columns)


def _inside(subspace: Subspace, columns: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(K,) whether a row of `columns` (K, rounds) is known, lies in an exact space and is not zero."""
    inside = (columns != UNKNOWN).all(axis=1) & (columns == 1).any(axis=1)
    inside[inside] = _lies_in(subspace, columns[inside], subspace.residual(columns[inside]))
    return np.asarray(inside)


def _lies_in(
    subspace: Subspace, columns: NDArray[np.uint8], residual: NDArray[np.float64]
) -> NDArray[np.bool_]:
    near = (INSIDE_DISTANCE + 10 * subspace.angle) ** 2 * columns.sum(axis=1, dtype=np.int64)
    return np.asarray(residual <= np.minimum(near, LARGEST_INSIDE_SQUARED))


def excludes(instance: Instance, bound: float) -> bool:
    """Whether a lower bound on the distance of all other columns shows that none of them is in the space."""
    return bool(bound > 1e-3 + 100 * instance.subspace.angle * np.sqrt(instance.rounds))


def expected_residual(instance: Instance) -> NDArray[np.float64]:
    """(K,) mean squared distance of a random column with the client's counts: the scale under noise."""
    mean, subspace = instance.expected, instance.subspace
    expected = subspace.residual(mean) + (mean * (1 - mean)) @ unit_distances(subspace.basis)
    return np.asarray(np.maximum(expected, np.finfo(np.float64).tiny))


def judge(
    instance: Instance,
    found: Candidates,
    *,
    solver: str,
    prove: bool = True,
    workers: BlockWorkers | None = None,
    belief: NDArray[np.float64] | None = None,
) -> Columns:
    """An outcome for every client.

    A column is `proved` if the counts fix every entry. Otherwise a proof needs three things: an exact space
    that holds the column (its rank is the number of clients that can have taken part), a column in it with
    the exact counts, and a proof that there is no other such column. With `prove`, certificates and
    enumeration look for the last one. In both cases the view must confirm what the proof assumes (see
    `assumptions`). Enumeration may also replace a column. Without a proof the column is `consistent`, or
    `unresolved` if its probability is below `LIKELY_FROM`. Under noise a solver that knows the probabilities
    of its columns passes them as `belief` (K,), and distances do not count.
    """
    subspace, windows, K = instance.subspace, instance.windows, instance.num_columns
    columns, fixed = found.columns.copy(), instance.determined
    columns[fixed] = instance.known[fixed].astype(np.uint8)
    doubtful = np.zeros(K) if belief is None or subspace.exact else belief.copy()
    verdict = Verdict(np.full(K, Outcome.UNRESOLVED, dtype="<U10"), doubtful, found.reason.copy())
    # A column of zeros lies in every space: only counts can speak for it.
    rows = np.flatnonzero((columns != UNKNOWN).all(axis=1) & (columns == 1).any(axis=1) & ~fixed)
    residual = subspace.residual(columns[rows])
    if subspace.exact:
        near = _lies_in(subspace, columns[rows], residual)
        outcome = Outcome.CONSISTENT if windows.exact else Outcome.LIKELY
        chance = np.full(len(rows), MEETS_ALL)
    elif belief is not None:
        near, outcome, chance = belief[rows] >= LIKELY_FROM, Outcome.LIKELY, belief[rows]
    else:
        near = residual < LIKELY_RESIDUAL * expected_residual(instance)[rows]
        outcome, chance = Outcome.LIKELY, _probability(instance, columns[rows], rows)
    rows, chance = rows[near], chance[near]
    if not windows.complete:
        rows, chance = _attributed(windows, columns, rows, chance)
    met = windows.of(rows).meet(columns[rows])
    rows, chance = rows[met], chance[met]
    verdict.give(rows, outcome, chance)
    verdict.give(np.flatnonzero(fixed), Outcome.PROVED, 1.0)
    lists: dict[int, NDArray[np.uint8]] = {}
    if instance.exact:
        own = found.proved[rows] & (columns[rows] == found.columns[rows]).all(axis=1)
        if instance.holds_all_columns:
            verdict.give(rows[own], Outcome.PROVED, 1.0)
        if prove and len(instance.searchable) and (verdict.outcome != Outcome.PROVED).any():
            sharp = instance.sharpened()
            if instance.holds_all_columns:
                open_ = rows[~own]
                proved = unique(sharp, columns[open_], open_, workers or Threads())
                verdict.give(open_[proved], Outcome.PROVED, 1.0)
            lists = settle_by_enumeration(sharp, columns, verdict)
    settle_duplicates(instance, columns, verdict)
    if (verdict.outcome == Outcome.PROVED).any():
        fits = _inside(subspace, columns) & windows.meet(columns)
        withdraw_unconfirmed(instance, columns, fits, lists, verdict)
    unresolved = verdict.outcome == Outcome.UNRESOLVED
    verdict.reason[unresolved & (verdict.reason == "")] = _why(instance)
    return Columns(columns.T, verdict.outcome, verdict.confidence, verdict.reason.astype(np.str_), solver)


def _probability(
    instance: Instance, columns: NDArray[np.uint8], clients: NDArray[np.intp]
) -> NDArray[np.float64]:
    """(n,) the probability that a column found under noise is right, compared with its neighbours."""
    subspace = instance.subspace
    rivals = Rivals(instance.windows, subspace)
    directions = max(instance.rounds - subspace.rank, 1)
    variance = float(np.median(subspace.residual(columns))) / directions if len(columns) else 1.0
    pairs = zip(columns, clients.tolist(), strict=True)
    return np.array([rivals.confidence(column, client, variance) for column, client in pairs])


def _attributed(
    windows: Windows, columns: NDArray[np.uint8], rows: NDArray[np.intp], belief: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Give every client the column that fits it best, in place; return the clients and their confidences.

    A column that was found for one client may be another's. Copies of one column stay with their clients:
    `settle_duplicates` decides whether these are a group.
    """
    distinct, first, place = np.unique(columns[rows], axis=0, return_index=True, return_inverse=True)
    whose = attribute(windows, distinct)
    took = np.flatnonzero(whose.column >= 0)
    copies = rows[np.isin(rows, took, invert=True)]
    shared = np.bincount(place, minlength=len(distinct))[place] > 1
    copies = rows[shared & np.isin(rows, copies)]
    beliefs = np.concatenate(
        (belief[first[whose.column[took]]] * whose.confidence[took], np.full(len(copies), 0.5))
    )
    columns[took] = distinct[whose.column[took]]
    return np.concatenate((took, copies)), beliefs


def _why(instance: Instance) -> str:
    clients, dim = instance.subspace.num_clients, instance.problem.dim
    if instance.subspace.rank == 0:
        return "the aggregates are zero"
    if instance.underdetermined:
        return (
            f"rank too low to recover: {instance.rounds} rounds for {clients} clients; "
            "more rounds than clients are needed"
        )
    if dim < clients:
        return f"updates of {dim} entries cannot tell {clients} clients apart"
    return "no column near the aggregates' space has the client's counts"

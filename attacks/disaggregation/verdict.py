"""From candidate columns to outcomes: what a solver's find is worth, judged apart from the solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.attribution import attribute
from attacks.disaggregation.block_workers import BlockWorkers, Threads
from attacks.disaggregation.certificate import unique
from attacks.disaggregation.choosing import possible, weights
from attacks.disaggregation.listing import MOST_LISTED, Listing
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.recovery import UNKNOWN, Columns, Outcome
from attacks.disaggregation.rivals import Rivals
from attacks.disaggregation.subspace import Subspace
from attacks.disaggregation.windows import Windows

NEAR = 1e-3
"""Distance from an exact space, beyond its own angle, at which a column of norm 1 still counts as inside."""
APART = 0.05
"""Squared distance beyond which no column counts as inside an exact space, however long it is."""
CLEAR = 0.3
"""Under noise: distance² relative to that of a random column with the same counts; wrong columns that a
solver settles on come down to about twice this, right ones stay below until the method fails."""

MEETS_ALL = 0.99
"""Confidence in a column that meets every constraint of a client, if no other is known that does."""

BENEFIT = 4
"""So many clients with a column of their own are supposed besides those that are known to have one or not."""
SURELY = 0.9
"""Chance that there is no other column from which nothing is said about it."""
NOT_ALONE = "other columns may meet every constraint of this client, as they do of others"
MOST_MESSAGES = 1 << 26
"""Numbers between lists and rounds beyond which the lists are not weighed."""
EVEN = 0.5
"""Probability from which a column is called likely."""


@dataclass(eq=False)
class Candidates:
    """The best column so far of every client: `columns` (K, rounds) uint8, UNKNOWN at first.

    `distance` (K,) is its squared distance from the space. `proved` (K,) marks columns to which the
    solver's own bound leaves no alternative. `reason` (K,) is what the solver has to say where it failed.
    """

    columns: NDArray[np.uint8]
    distance: NDArray[np.float64]
    proved: NDArray[np.bool_]
    reason: NDArray[np.object_]

    @classmethod
    def none(cls, problem: DisaggregationProblem) -> Candidates:
        """Nothing found yet."""
        K = len(problem.clients)
        return cls(
            np.full((K, problem.rounds), UNKNOWN, dtype=np.uint8),
            np.full(K, np.inf),
            np.zeros(K, dtype=np.bool_),
            np.full(K, "", dtype=object),
        )

    def offer(
        self, clients: NDArray[np.intp], columns: NDArray[np.generic], distance: NDArray[np.float64]
    ) -> bool:
        """Keep those of the rows that are nearer than what their clients have; whether there are any."""
        order = np.argsort(-distance, kind="stable")  # a client may have several rows: its nearest comes last
        order = order[distance[order] < self.distance[clients[order]]]
        self.columns[clients[order]] = columns[order]
        self.distance[clients[order]] = distance[order]
        return bool(len(order))


def determined(problem: DisaggregationProblem) -> NDArray[np.bool_]:
    """(K,) clients whose exact counts fix every entry: all windows empty or full."""
    return np.asarray(~np.isnan(problem.windows.known()).any(axis=1))


def out_of_reach(problem: DisaggregationProblem, subspace: Subspace) -> NDArray[np.bool_]:
    """(K,) clients for whom there is nothing to search: settled by counts, or too few rounds for anyone."""
    if subspace.rank == 0 or problem.rounds <= active_clients(problem, subspace):
        return np.ones(len(problem.clients), dtype=np.bool_)
    return determined(problem)


def _holds_all(problem: DisaggregationProblem, subspace: Subspace) -> bool:
    """Whether the space is sure to hold every client's column.

    If A's rank is the number of clients that can have taken part, then col A = col P.
    """
    return subspace.rank == active_clients(problem, subspace)


def active_clients(problem: DisaggregationProblem, subspace: Subspace) -> int:
    """Number of clients that can have taken part: all but those whose counts say never."""
    return subspace.num_clients - int((np.nan_to_num(problem.windows.known(), nan=1) == 0).all(axis=1).sum())


def resolved(subspace: Subspace, found: Candidates) -> NDArray[np.bool_]:
    """(K,) clients with a column that lies in an exact space; one of zeros, which always does, is none."""
    done = (found.columns != UNKNOWN).all(axis=1) & (found.columns == 1).any(axis=1)
    done[done] = _lies_in(subspace, found.columns[done], subspace.residual(found.columns[done]))
    return np.asarray(done)


def _lies_in(
    subspace: Subspace, columns: NDArray[np.uint8], residual: NDArray[np.float64]
) -> NDArray[np.bool_]:
    near = (NEAR + 10 * subspace.angle) ** 2 * columns.sum(axis=1, dtype=np.int64)
    return np.asarray(residual <= np.minimum(near, APART))


def excludes(bound: float, subspace: Subspace, rounds: int) -> bool:
    """Whether a lower bound on the distance of all other columns shows that none of them is in the space."""
    return bool(bound > 1e-3 + 100 * subspace.angle * np.sqrt(rounds))


def expected_residual(problem: DisaggregationProblem, subspace: Subspace) -> NDArray[np.float64]:
    """(K,) mean squared distance of a random column with the client's counts: the yardstick under noise."""
    mean = problem.windows.expected()
    outside = 1 - np.einsum("ij,ij->i", subspace.basis, subspace.basis)
    expected = subspace.residual(mean) + (mean * (1 - mean)) @ outside
    return np.asarray(np.maximum(expected, np.finfo(np.float64).tiny))


def judge(
    problem: DisaggregationProblem,
    subspace: Subspace,
    found: Candidates,
    *,
    solver: str,
    prove: bool = True,
    workers: BlockWorkers | None = None,
    belief: NDArray[np.float64] | None = None,
) -> Columns:
    """An outcome for every client.

    `proved` needs: counts that fix every entry; or a space that is exact and certain to hold the column
    (its rank is the number of clients that can have taken part), a column that lies in it and has the
    exact counts, and a proof that no other does, which is sought here if `prove`. Without it the column is
    `consistent`. Under noise a solver that knows the probability of its columns says so with `belief` (K,),
    and distances don't count.
    """
    columns, windows, K = found.columns.copy(), problem.windows, len(problem.clients)
    fixed = determined(problem)
    columns[fixed] = windows.known()[fixed].astype(np.uint8)
    doubtful = np.zeros(K) if belief is None or subspace.exact else belief.copy()
    verdict = _Verdict(np.full(K, Outcome.UNRESOLVED, dtype="<U10"), doubtful, found.reason.copy())
    # A column of zeros lies in every space: only counts can speak for it.
    rows = np.flatnonzero((columns != UNKNOWN).all(axis=1) & (columns == 1).any(axis=1) & ~fixed)
    residual = subspace.residual(columns[rows])
    if subspace.exact:
        near = _lies_in(subspace, columns[rows], residual)
        outcome, chance = (
            (Outcome.CONSISTENT if windows.exact else Outcome.LIKELY),
            np.full(len(rows), MEETS_ALL),
        )
    elif belief is not None:
        near, outcome, chance = belief[rows] >= EVEN, Outcome.LIKELY, belief[rows]
    else:
        near = residual < CLEAR * expected_residual(problem, subspace)[rows]
        outcome, chance = Outcome.LIKELY, _probability(problem, subspace, columns[rows], rows)
    rows, chance = rows[near], chance[near]
    if not windows.complete:
        rows, chance = _attributed(windows, columns, rows, chance)
    met = windows.of(rows).meet(columns[rows])
    rows, chance = rows[met], chance[met]
    verdict.give(rows, outcome, chance)
    verdict.give(np.flatnonzero(fixed), Outcome.PROVED, 1.0)
    if subspace.exact and windows.exact:
        own = found.proved[rows] & (columns[rows] == found.columns[rows]).all(axis=1)
        if _holds_all(problem, subspace):
            verdict.give(rows[own], Outcome.PROVED, 1.0)
        if prove and not out_of_reach(problem, subspace).all() and (verdict.outcome != Outcome.PROVED).any():
            sharp = subspace.sharpened()
            if _holds_all(problem, subspace):
                open_ = rows[~own]
                proved = unique(columns[open_], windows.of(open_), sharp, workers or Threads())
                verdict.give(open_[proved], Outcome.PROVED, 1.0)
            _settle_by_lists(problem, sharp, columns, verdict)
    _settle_duplicates(problem, subspace, columns, verdict)
    unresolved = verdict.outcome == Outcome.UNRESOLVED
    verdict.reason[unresolved & (verdict.reason == "")] = _why(problem, subspace)
    return Columns(columns.T, verdict.outcome, verdict.confidence, verdict.reason.astype(np.str_), solver)


def _probability(
    problem: DisaggregationProblem, subspace: Subspace, columns: NDArray[np.uint8], clients: NDArray[np.intp]
) -> NDArray[np.float64]:
    """(n,) the chance that a column found under noise is right, from the rivals next to it."""
    rivals = Rivals(problem.windows, subspace)
    directions = max(problem.rounds - subspace.rank, 1)
    variance = float(np.median(subspace.residual(columns))) / directions if len(columns) else 1.0
    pairs = zip(columns, clients.tolist(), strict=True)
    return np.array([rivals.confidence(column, client, variance) for column, client in pairs])


def _attributed(
    windows: Windows, columns: NDArray[np.uint8], rows: NDArray[np.intp], belief: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Rows and beliefs after every client was given the column that fits it best, in place.

    A column that was found for one client may be another's. Copies of one column stay with the clients
    that have them: whether they are a group is for `_settle_duplicates` to say.
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


@dataclass(eq=False)
class _Verdict:
    """Outcomes in the making, (K,) each."""

    outcome: NDArray[np.str_]
    confidence: NDArray[np.float64]
    reason: NDArray[np.object_]

    def give(
        self,
        clients: NDArray[np.intp] | int,
        outcome: Outcome,
        confidence: float | NDArray[np.float64],
        reason: str = "",
    ) -> None:
        self.outcome[clients], self.confidence[clients], self.reason[clients] = outcome, confidence, reason


def _settle_by_lists(
    problem: DisaggregationProblem, subspace: Subspace, columns: NDArray[np.uint8], verdict: _Verdict
) -> None:
    """Clients without a proof, but with a list of all columns that they can have: the likeliest, in place.

    If only one is possible that is a proof. Of several that are equally likely the solver's find stays.
    """
    listing = Listing(problem.windows, subspace)
    every = {k: listing.columns(k) for k in np.flatnonzero(verdict.outcome != Outcome.PROVED).tolist()}
    lists = {k: listed for k, listed in every.items() if listed is not None and len(listed)}
    _doubt_unlisted(problem, columns, [k for k in every if k not in lists], lists, verdict)
    for client in (k for k, listed in lists.items() if len(listed) == MOST_LISTED):
        verdict.give(client, Outcome.UNRESOLVED, 1 / MOST_LISTED, _several(f"{MOST_LISTED} or more"))
    lists = {k: listed for k, listed in lists.items() if len(listed) < MOST_LISTED}
    for client, (options, weight) in _weighed(problem, subspace, lists, columns, verdict).items():
        likeliest = weight >= weight.max() - 1e-9
        own = likeliest & (options == columns[client]).all(axis=1)
        columns[client] = options[np.argmax(own if own.any() else likeliest)]
        if len(options) == 1 and _holds_all(problem, subspace):
            verdict.give(client, Outcome.PROVED, 1.0)
        else:
            outcome = Outcome.CONSISTENT if weight.max() >= EVEN else Outcome.UNRESOLVED
            reason = _several(str(len(options))) if len(options) > 1 else ""
            verdict.give(client, outcome, min(float(weight.max()), MEETS_ALL), reason)


def _doubt_unlisted(
    problem: DisaggregationProblem,
    columns: NDArray[np.uint8],
    clients: list[int],
    lists: dict[int, NDArray[np.uint8]],
    verdict: _Verdict,
) -> None:
    """The `clients` whose columns are too many for a list: as likely as others' to be the only one.

    And if several clients have the same counts, their columns can be exchanged.
    """
    proved = BENEFIT + int((verdict.outcome[~determined(problem)] == Outcome.PROVED).sum())
    alone = (proved + sum(1 / len(listed) for listed in lists.values())) / (proved + len(lists))
    held: dict[bytes, set[bytes]] = {}
    resolved = [k for k in clients if verdict.outcome[k] != Outcome.UNRESOLVED]
    counts = problem.windows.count
    if problem.windows.complete and problem.windows.shared:
        for k in resolved:
            held.setdefault(counts[k].tobytes(), set()).add(columns[k].tobytes())
    for k in resolved:
        chance = alone / len(held.get(counts[k].tobytes(), {b""}))
        if chance < 1:
            outcome = verdict.outcome[k] if chance >= EVEN else Outcome.UNRESOLVED
            verdict.give(k, outcome, chance * verdict.confidence[k], NOT_ALONE if chance < SURELY else "")


def _several(number: str) -> str:
    return f"{number} columns meet every constraint of this client"


def _weighed(
    problem: DisaggregationProblem,
    subspace: Subspace,
    lists: dict[int, NDArray[np.uint8]],
    columns: NDArray[np.uint8],
    verdict: _Verdict,
) -> dict[int, tuple[NDArray[np.uint8], NDArray[np.float64]]]:
    """The lists without what cohort sizes rule out, with the probabilities of the columns in them.

    All are alike where sizes are not known, or not those of the clients that have counts, or contradict them.
    """
    alike = {k: (listed, np.full(len(listed), 1 / len(listed))) for k, listed in lists.items()}
    windows, sizes = problem.windows, problem.cohort_sizes
    if not lists or sizes is None or subspace.num_clients != windows.clients:
        return alike
    unlisted = np.isin(np.arange(windows.clients), list(lists), invert=True)
    proved = verdict.outcome == Outcome.PROVED
    left = np.asarray(sizes, dtype=np.int64) - columns[proved].sum(axis=0, dtype=np.int64)
    shorter = possible(list(lists.values()), left)
    if shorter is None:
        return alike
    # Of clients without a list the column counts for what it is worth.
    trust = np.where(verdict.outcome == Outcome.UNRESOLVED, 0.0, verdict.confidence)[:, None]
    others = (trust * (columns == 1) + (1 - trust) * windows.expected())[unlisted & ~proved]
    if len(lists) * left.max() * len(left) > MOST_MESSAGES:
        return {k: (a, np.full(len(a), 1 / len(a))) for k, a in zip(lists, shorter, strict=True)}
    return dict(zip(lists, zip(shorter, weights(shorter, left, others), strict=True), strict=True))


def _settle_duplicates(
    problem: DisaggregationProblem, subspace: Subspace, columns: NDArray[np.uint8], verdict: _Verdict
) -> None:
    """Clients that ended with one and the same column.

    If A's rank leaves room for it they are a group that is always together. Else the columns of P are
    independent, at most one of the clients has this column, and which one is not known. Noise hides the
    rank, so under noise it can be either.
    """
    rows = np.flatnonzero((verdict.outcome != Outcome.UNRESOLVED) & (columns == 1).any(axis=1))
    # As strings of bytes: NumPy sorts the rows of a matrix entry by entry, which takes far longer.
    strings = np.array([row.tobytes() for row in np.packbits(columns[rows], axis=1)], dtype=object)
    _, group, size = np.unique(strings, return_inverse=True, return_counts=True)
    missing = subspace.num_clients - subspace.rank
    for g in np.flatnonzero(size > 1):
        members = rows[group == g]
        names = ", ".join(str(problem.clients[m]) for m in members[:5]) + (", …" if len(members) > 5 else "")
        proved = verdict.outcome[members] == Outcome.PROVED
        if proved.all() or missing >= len(members) - 1:
            verdict.reason[members] = (
                f"always together: clients {names}; only the sum of their updates is known"
            )
        elif not subspace.exact:
            verdict.confidence[members] /= len(members)
            verdict.reason[members] = f"one column fits clients {names}: always together, or only one's"
        else:
            reason = f"one column fits clients {names}, and it can be only one's"
            verdict.give(members[~proved], Outcome.UNRESOLVED, 1 / len(members), reason)


def _why(problem: DisaggregationProblem, subspace: Subspace) -> str:
    if subspace.rank == 0:
        return "the aggregates are zero"
    if problem.rounds <= active_clients(problem, subspace):
        return (
            f"rank too low to recover: {problem.rounds} rounds for {subspace.num_clients} clients; "
            "more rounds than clients are needed"
        )
    if problem.dim < subspace.num_clients:
        return f"updates of {problem.dim} entries cannot tell {subspace.num_clients} clients apart"
    return "no column near the aggregates' space has the client's counts"

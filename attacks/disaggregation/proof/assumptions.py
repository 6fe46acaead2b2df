"""What a proof assumes about the federation, and how much of it the view can confirm.

A proof is a theorem: *if* the sums hold the listed clients' updates and nothing else, this column is the only
one. The rank alone cannot confirm the "if". A client without a column of its own (it sends zeros, or what
another client sends) lowers the rank by one, and anything that no listed client sent raises it again.

Cohort sizes can confirm it. Suppose that every client has a column in the space with its exact counts, that
these columns are independent, as many as the rank, and add up to the size s of every cohort. Then

- no direction of the space is left for anything else: every round is explained;
- no client without counts is in the sums: counts that are complete add up to s already;
- s lies in the space. But s is the sum of the true columns, so it is impossible that all of them but one lie
  in the space. At least two would have to be missing, and their sum would have to lie in the space.

Such columns are a *witness*. They need not be the only ones: other clients may have several columns to choose
from. Without a witness a proof is withdrawn, and its column is `consistent`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.settling import MEETS_ALL, Verdict
from attacks.disaggregation.recovery import Outcome

INDEPENDENT = 1e-6
"""Distance of a binary column from the span of others above which it is independent of them. The columns are
exact, so that anything below is rounding."""
WITNESSES = 8
"""Witnesses to try if the first ones are not independent."""
NODES_PER_WITNESS = 1000
"""Branch-and-bound nodes spent on one witness. Unlike a time limit, this gives the same result everywhere."""
MOST_OPTIONS = 1 << 14
"""Columns to choose a witness from, of all clients together."""

NO_SIZES = "not proved: without cohort sizes the sums may hold more than the listed clients sent"
NO_COUNTS = "not proved: the sums hold clients without counts"
NO_COLUMN = "not proved: no column fits some other client, so the sums may hold something else"
NO_WITNESS = "not proved: the columns do not explain the sums and the cohort sizes together"
UNCHECKED_COUNTS = "not proved: the counts are not known to add up to the cohort sizes"


def withdraw_unconfirmed(
    instance: Instance,
    columns: NDArray[np.uint8],
    fits: NDArray[np.bool_],
    lists: dict[int, NDArray[np.uint8]],
    verdict: Verdict,
) -> None:
    """Turn proofs into `consistent`, in place, if the view does not confirm what they assume.

    `fits` (K,) says which of the `columns` (K, rounds) lie in the space and have the exact counts. `lists`
    holds the enumerated columns of clients without a proof. Counts of zero need no
    confirmation: a device that never trained is in no sum. Other counts that fix a column by themselves need
    sums that hold every counted update.
    """
    proved = verdict.outcome == Outcome.PROVED
    never = instance.determined & ~(columns == 1).any(axis=1)
    if not (proved & ~never).any():
        return
    options = [lists.get(k, columns[[k]][fits[[k]]]) for k in np.flatnonzero(~proved).tolist()]
    doubt = _doubt(instance, columns[proved & ~never], options)
    if not doubt and not fits[proved & ~never].all():
        doubt = NO_WITNESS
    if not doubt:
        return
    by_counts = instance.determined & (never | _counts_add_up(instance))
    withdrawn = proved & ~by_counts
    verdict.outcome[withdrawn] = Outcome.CONSISTENT
    verdict.confidence[withdrawn] = np.minimum(verdict.confidence[withdrawn], MEETS_ALL)
    verdict.reason[withdrawn & (verdict.reason == "")] = doubt


def _doubt(instance: Instance, proved: NDArray[np.uint8], options: list[NDArray[np.uint8]]) -> str:
    """The first assumption that the view does not confirm; empty if there is a witness."""
    sizes = instance.problem.cohort_sizes
    if sizes is None:
        return NO_SIZES
    if not instance.covers_everyone:
        return NO_COUNTS
    if not (instance.exact and instance.holds_all_columns):
        return UNCHECKED_COUNTS  # nothing but counts can have proved anything
    if not all(map(len, options)):
        return NO_COLUMN
    found = _has_witness(proved, options, np.asarray(sizes), instance.subspace.rank)
    return "" if found else NO_WITNESS


def _counts_add_up(instance: Instance) -> bool:
    """Whether everybody's counts are complete and add up to the cohort sizes: no counted update was lost.

    They are compared window by window if all clients have the same windows, in total otherwise.
    """
    windows, sizes = instance.windows, instance.problem.cohort_sizes
    if sizes is None or not windows.complete or not instance.covers_everyone:
        return False
    size = np.asarray(sizes, dtype=np.float64)
    if not windows.shared:
        return bool(windows.count.sum() == size.sum())
    held = windows.of(np.arange(1)).inside(size[None]).sum(axis=2)[0]
    return bool((windows.count.sum(axis=0) == held).all())


def _has_witness(
    fixed: NDArray[np.uint8], lists: list[NDArray[np.uint8]], sizes: NDArray[np.int64], rank: int
) -> bool:
    """Whether one column from each list, together with the `fixed` columns (n, rounds), is a witness.

    An integer program chooses different columns that add up, none of them a combination of the fixed ones. It
    does not know whether they are independent of each other, so it is asked again with other preferences
    until they are.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    left = sizes - fixed.sum(axis=0, dtype=np.int64)
    if not _independent(fixed):
        return False
    if not lists:
        return len(fixed) == rank and not left.any()
    span = np.linalg.qr(fixed.T.astype(np.float64))[0]
    lists = [listed[(listed <= left).all(axis=1) & _outside(listed, span)] for listed in lists]
    every = np.concatenate(lists)
    if not all(map(len, lists)) or len(every) > MOST_OPTIONS:
        return False
    list_of = np.repeat(np.arange(len(lists)), [len(listed) for listed in lists])
    _, same_as = np.unique(every, axis=0, return_inverse=True)
    total = LinearConstraint(csr_array(every.T.astype(np.float64)), left, left)
    one_each = LinearConstraint(csr_array(_incidence(list_of)), 1, 1)
    all_different = LinearConstraint(csr_array(_incidence(same_as.ravel())), 0, 1)
    rng = np.random.default_rng(0)
    for _ in range(WITNESSES):
        chosen = milp(
            rng.random(len(every)),
            integrality=np.ones(len(every), dtype=np.int64),
            bounds=Bounds(0, 1),
            constraints=[total, one_each, all_different],
            options={"node_limit": NODES_PER_WITNESS},
        ).x
        if chosen is None:
            return False
        witness = np.concatenate((fixed, every[chosen > 0.5]))
        adds_up = bool((witness.sum(axis=0, dtype=np.int64) == sizes).all())
        if adds_up and len(witness) == rank and _independent(witness):
            return True
    return False


def _incidence(group: NDArray[np.intp]) -> NDArray[np.float64]:
    """(groups, n) 1 where option j belongs to group i."""
    return np.asarray(group == np.arange(group.max() + 1)[:, None], dtype=np.float64)


def _outside(columns: NDArray[np.uint8], span: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) whether a row of `columns` (n, rounds) is outside a `span` with this orthonormal basis."""
    return np.asarray(np.linalg.norm(columns - (columns @ span) @ span.T, axis=1) > INDEPENDENT)


def _independent(columns: NDArray[np.uint8]) -> bool:
    """Whether no row of `columns` (n, rounds) is a combination of those before it."""
    if len(columns) > columns.shape[1]:
        return False
    R = np.linalg.qr(columns.T.astype(np.float64), mode="r")
    return bool((np.abs(np.diag(R)) > INDEPENDENT).all())

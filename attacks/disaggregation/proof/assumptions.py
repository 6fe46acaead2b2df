"""What a proof assumes about the federation, and how much of it the view can confirm.

A proof is a theorem: *if* the sums hold the listed clients' updates and nothing else, this column is the only
one. The rank alone cannot confirm the "if". A client without a column of its own (it sends zeros, or what
another client sends) lowers the rank by one, and anything that no listed client sent raises it again.

Cohort sizes can confirm it, if every sum holds as many updates as its size s says:

- Everybody's counts are complete and add up to the sizes. Then nobody without counts is in the sums, and no
  counted update is missing. The one exception cannot be seen: one replaces the other in the same window.
- There is a *witness*: one column for every client, in the space and with its exact counts. They are
  independent, as many as the rank, and add up to s. Then s lies in the space. But s is the sum of the true
  columns, so it is impossible that all of them but one lie in the space.
- The witness leaves nothing of any sum but rounding.
- A disturbed round, or a constant in every sum, would be noticed: its column is not in the space. A
  disturbance that fills the space is in the space, so there is none.

A witness need not be unique: other clients may have several columns to choose from. If one of these checks
fails, or is impossible, proofs are withdrawn, and their columns are `consistent`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.settling import MEETS_ALL, Verdict
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.space.mapped_memory import slices

INDEPENDENT = 1e-6
"""Distance of a binary column from the span of others above which it is independent of them. The columns are
exact, so that anything below is rounding."""
WITNESSES = 8
"""Witnesses to try if the first ones are not independent."""
NODES_PER_WITNESS = 1000
"""Branch-and-bound nodes spent on one witness. Unlike a time limit, this gives the same result everywhere."""
ROUNDING = 20
"""Largest length of a sum's unexplained part, in units of the type's precision and of the largest sum. The
quickstart has 1 with plain sums, and 6 with masked ones, which are rounded to fixed point."""
MOST_OPTIONS = 1 << 14
"""Columns to choose a witness from, of all clients together."""

NO_SIZES = "not proved: without cohort sizes the sums may hold more than the listed clients sent"
MISSING_COUNTS = "not proved: some counts are missing, so the sums may hold clients without counts"
WRONG_COUNTS = "not proved: the counts do not add up to the cohort sizes"
NO_COLUMN = "not proved: no column fits some other client, so the sums may hold something else"
NO_WITNESS = "not proved: the columns do not explain the sums and the cohort sizes together"
UNEXPLAINED = "not proved: the sums hold something that no listed client sent"
UNNOTICED = "not proved: if a round were disturbed, nobody would notice"


def withdraw_unconfirmed(
    instance: Instance,
    columns: NDArray[np.uint8],
    fits: NDArray[np.bool_],
    lists: dict[int, NDArray[np.uint8]],
    verdict: Verdict,
) -> None:
    """Turn proofs into `consistent`, in place, if the view does not confirm what they assume.

    `fits` (K,) says which of the `columns` (K, rounds) lie in the space and have the exact counts. `lists`
    holds the enumerated columns of clients without a proof. Counts of zero need no confirmation: a device
    that never trained is in no sum. Columns that other counts fix rest on the counts alone.
    """
    took_part = ~instance.determined | (columns == 1).any(axis=1)
    proved = took_part & (verdict.outcome == Outcome.PROVED)
    if not proved.any():
        return
    doubt = _doubt_about_counts(instance)
    if not doubt:
        from_sums = proved & ~instance.determined
        if not from_sums.any():
            return
        others = np.flatnonzero(took_part & ~proved).tolist()
        options = [lists.get(k, columns[[k]][fits[[k]]]) for k in others]
        doubt = _doubt_about_sums(instance, columns[proved], options) if fits[proved].all() else NO_WITNESS
        proved = from_sums
    if doubt:
        verdict.outcome[proved] = Outcome.CONSISTENT
        verdict.confidence[proved] = np.minimum(verdict.confidence[proved], MEETS_ALL)
        verdict.reason[proved & (verdict.reason == "")] = doubt


def _doubt_about_counts(instance: Instance) -> str:
    """Why the counts may not be those of everybody in the sums, and of nothing else; empty if they are."""
    if instance.problem.cohort_sizes is None:
        return NO_SIZES
    if not (instance.covers_everyone and instance.windows.complete):
        return MISSING_COUNTS
    return "" if _counts_add_up(instance.windows, np.asarray(instance.problem.cohort_sizes)) else WRONG_COUNTS


def _doubt_about_sums(instance: Instance, proved: NDArray[np.uint8], options: list[NDArray[np.uint8]]) -> str:
    """Why the sums may hold something else than the listed clients' updates; empty if they cannot."""
    sizes = np.asarray(instance.problem.cohort_sizes)
    if not all(map(len, options)):
        return NO_COLUMN
    witness = _witness(proved, options, sizes, instance.subspace.rank)
    if witness is None:
        return NO_WITNESS
    span = np.linalg.qr(witness.T.astype(np.float64))[0]
    if not _explains(span, instance.problem.aggregates):
        return UNEXPLAINED
    return "" if _would_notice(span, sizes) else UNNOTICED


def _counts_add_up(windows: Windows, sizes: NDArray[np.int64]) -> bool:
    """Whether complete counts add up to the cohort sizes.

    They are compared window by window if all clients have the same windows, in total otherwise.
    """
    if not windows.shared:
        return bool(windows.count.sum() == sizes.sum())
    held = windows.of(np.arange(1)).inside(sizes[None]).sum(axis=2)[0]
    return bool((windows.count.sum(axis=0) == held).all())


def _witness(
    fixed: NDArray[np.uint8], lists: list[NDArray[np.uint8]], sizes: NDArray[np.int64], rank: int
) -> NDArray[np.uint8] | None:
    """(rank, rounds) the `fixed` columns (n, rounds) and one column from each list, if they make a witness.

    An integer program chooses different columns that add up, none of them a combination of the fixed ones. It
    does not know whether they are independent of each other, so it is asked again with other preferences
    until they are.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    left = sizes - fixed.sum(axis=0, dtype=np.int64)
    if not _independent(fixed):
        return None
    if not lists:
        return fixed if len(fixed) == rank and not left.any() else None
    span = np.linalg.qr(fixed.T.astype(np.float64))[0]
    lists = [listed[(listed <= left).all(axis=1) & _outside(listed, span)] for listed in lists]
    every = np.concatenate(lists)
    if not all(map(len, lists)) or len(every) > MOST_OPTIONS:
        return None
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
            return None
        witness = np.concatenate((fixed, every[chosen > 0.5]))
        adds_up = bool((witness.sum(axis=0, dtype=np.int64) == sizes).all())
        if adds_up and len(witness) == rank and _independent(witness):
            return witness
    return None


def _explains(span: NDArray[np.float64], aggregates: NDArray[Any]) -> bool:
    """Whether a witness, with this orthonormal basis of its `span`, leaves nothing of any sum but rounding.

    The columns are exact, and so is their span: this sees far weaker things than the spectrum does.
    """
    unexplained, whole = np.zeros(len(aggregates)), np.zeros(len(aggregates))
    for part in slices(aggregates):
        rest = part - span @ (span.T @ part)
        unexplained += np.einsum("ij,ij->i", rest, rest)
        whole += np.einsum("ij,ij->i", part, part)
    precision = np.finfo(aggregates.dtype if aggregates.dtype.kind == "f" else np.float64).eps
    return bool(unexplained.max() <= (ROUNDING * precision) ** 2 * whole.max())


def _would_notice(span: NDArray[np.float64], sizes: NDArray[np.int64]) -> bool:
    """Whether a disturbed round, or a constant in every sum, would not have been explained as well.

    It goes unnoticed if its column (a single one, or all ones) is in the span. If all cohorts have the same
    size, a constant does no harm: it changes everybody's update alike.
    """
    disturbances = np.eye(len(span))
    if (sizes != sizes[0]).any():
        disturbances = np.vstack((disturbances, np.ones(len(span)) / np.sqrt(len(span))))
    return bool(_outside(disturbances, span).all())


def _incidence(group: NDArray[np.intp]) -> NDArray[np.float64]:
    """(groups, n) 1 where option j belongs to group i."""
    return np.asarray(group == np.arange(group.max() + 1)[:, None], dtype=np.float64)


def _outside(columns: NDArray[Any], span: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) whether a row of `columns` (n, rounds) is outside a `span` with this orthonormal basis."""
    return np.asarray(np.linalg.norm(columns - (columns @ span) @ span.T, axis=1) > INDEPENDENT)


def _independent(columns: NDArray[np.uint8]) -> bool:
    """Whether no row of `columns` (n, rounds) is a combination of those before it."""
    if len(columns) > columns.shape[1]:
        return False
    R = np.linalg.qr(columns.T.astype(np.float64), mode="r")
    return bool((np.abs(np.diag(R)) > INDEPENDENT).all())

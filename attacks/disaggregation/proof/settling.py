"""Revision of outcomes: a client with several possible columns, and several clients with the same column.

Outcomes are first given column by column. Two facts revise them: the enumeration of all columns that a client
can have, and the cohort sizes, which are the sum of all clients' columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.columns.enumeration import MOST_ENUMERATED, Enumeration
from attacks.disaggregation.counts.cohort_size_posterior import possible, posterior
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.recovery import Outcome

MEETS_ALL = 0.99
"""Confidence in a column that meets every constraint of a client, if no other such column is known."""

UNIQUE_PSEUDO_COUNT = 4
"""Pseudo-count of clients assumed to have a unique column (smoothing)."""
SILENT_ABOVE = 0.9
"""Probability of uniqueness above which a column gets no remark about possible others."""
NOT_ALONE = "other columns may meet every constraint of this client, as they do of others"
MOST_MESSAGES = 1 << 26
"""Messages between clients and rounds above which all enumerated columns count as equally likely."""
LIKELY_FROM = 0.5
"""Least probability of a column that is stood by."""


@dataclass(eq=False)
class Verdict:
    """Outcomes that can still change, (K,) each."""

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
        """Replace the outcome of some clients."""
        self.outcome[clients], self.confidence[clients], self.reason[clients] = outcome, confidence, reason


def settle_by_enumeration(
    instance: Instance, columns: NDArray[np.uint8], verdict: Verdict
) -> dict[int, NDArray[np.uint8]]:
    """Give clients without a proof the likeliest of their enumerated columns, in place.

    If only one column is possible, that is a proof. Among equally likely columns the solver's one stays. The
    enumerated columns are returned by client. No columns mean that none fits the client.
    """
    enumeration = Enumeration(instance)
    every = {k: enumeration.columns(k) for k in np.flatnonzero(verdict.outcome != Outcome.PROVED).tolist()}
    lists = {k: listed for k, listed in every.items() if listed is not None and len(listed)}
    _doubt_unlisted(instance, columns, [k for k in every if k not in lists], lists, verdict)
    for client in (k for k, listed in lists.items() if len(listed) == MOST_ENUMERATED):
        verdict.give(client, Outcome.UNRESOLVED, 1 / MOST_ENUMERATED, _several(f"{MOST_ENUMERATED} or more"))
    lists = {k: listed for k, listed in lists.items() if len(listed) < MOST_ENUMERATED}
    for client, (options, weight) in _weighed(instance, lists, columns, verdict).items():
        likeliest = weight >= weight.max() - 1e-9
        own = likeliest & (options == columns[client]).all(axis=1)
        columns[client] = options[np.argmax(own if own.any() else likeliest)]
        if len(options) == 1 and instance.holds_all_columns:
            verdict.give(client, Outcome.PROVED, 1.0)
        else:
            outcome = Outcome.CONSISTENT if weight.max() >= LIKELY_FROM else Outcome.UNRESOLVED
            reason = _several(str(len(options))) if len(options) > 1 else ""
            verdict.give(client, outcome, min(float(weight.max()), MEETS_ALL), reason)
    return {k: listed for k, listed in every.items() if listed is not None}


def _doubt_unlisted(
    instance: Instance,
    columns: NDArray[np.uint8],
    clients: list[int],
    lists: dict[int, NDArray[np.uint8]],
    verdict: Verdict,
) -> None:
    """Lower the confidence of the `clients` whose columns were not enumerated.

    Their columns are unique as often as those of the enumerated clients. Clients with the same counts can
    also exchange their columns.
    """
    proved = UNIQUE_PSEUDO_COUNT + int((verdict.outcome[~instance.determined] == Outcome.PROVED).sum())
    alone = (proved + sum(1 / len(listed) for listed in lists.values())) / (proved + len(lists))
    held: dict[bytes, set[bytes]] = {}
    resolved = [k for k in clients if verdict.outcome[k] != Outcome.UNRESOLVED]
    windows = instance.windows
    counts = windows.count
    if windows.complete and windows.shared:
        for k in resolved:
            held.setdefault(counts[k].tobytes(), set()).add(columns[k].tobytes())
    for k in resolved:
        chance = alone / len(held.get(counts[k].tobytes(), {b""}))
        if chance < 1:
            outcome = verdict.outcome[k] if chance >= LIKELY_FROM else Outcome.UNRESOLVED
            reason = NOT_ALONE if chance < SILENT_ABOVE else ""
            verdict.give(k, outcome, chance * verdict.confidence[k], reason)


def _several(number: str) -> str:
    return f"{number} columns meet every constraint of this client"


def _weighed(
    instance: Instance,
    lists: dict[int, NDArray[np.uint8]],
    columns: NDArray[np.uint8],
    verdict: Verdict,
) -> dict[int, tuple[NDArray[np.uint8], NDArray[np.float64]]]:
    """The lists without columns that the cohort sizes rule out, and the probabilities of the columns.

    All columns of a client are equally likely if the sizes are unknown, contradict the columns, or also count
    clients without a column.
    """
    alike = {k: (listed, np.full(len(listed), 1 / len(listed))) for k, listed in lists.items()}
    sizes = instance.problem.cohort_sizes
    if not lists or sizes is None or not instance.covers_everyone:
        return alike
    unlisted = np.isin(np.arange(instance.num_columns), list(lists), invert=True)
    proved = verdict.outcome == Outcome.PROVED
    left = np.asarray(sizes, dtype=np.int64) - columns[proved].sum(axis=0, dtype=np.int64)
    shorter = possible(list(lists.values()), left)
    if shorter is None:
        return alike
    # A client without a list contributes its column, weighted by its confidence.
    trust = np.where(verdict.outcome == Outcome.UNRESOLVED, 0.0, verdict.confidence)[:, None]
    others = (trust * (columns == 1) + (1 - trust) * instance.expected)[unlisted & ~proved]
    if len(lists) * left.max() * len(left) > MOST_MESSAGES:
        return {k: (a, np.full(len(a), 1 / len(a))) for k, a in zip(lists, shorter, strict=True)}
    return dict(zip(lists, zip(shorter, posterior(shorter, left, others), strict=True), strict=True))


def settle_duplicates(instance: Instance, columns: NDArray[np.uint8], verdict: Verdict) -> None:
    """Decide about clients that ended with the same column.

    If A's rank allows it, they are a group that is always together, and so are clients whose counts fix the
    column. Otherwise the columns of P are independent: at most one of the clients has this column, and
    nothing tells which one. Both are possible if noise hides the rank, or if all of them seem proved, which
    shows that the rank is a coincidence.
    """
    rows = np.flatnonzero((verdict.outcome != Outcome.UNRESOLVED) & (columns == 1).any(axis=1))
    # As byte strings: NumPy sorts the rows of a matrix entry by entry, which is far slower.
    strings = np.array([row.tobytes() for row in np.packbits(columns[rows], axis=1)], dtype=object)
    _, group, size = np.unique(strings, return_inverse=True, return_counts=True)
    missing = instance.subspace.num_clients - instance.subspace.rank
    for g in np.flatnonzero(size > 1):
        members = rows[group == g]
        named = ", ".join(str(instance.problem.clients[m]) for m in members[:5])
        names = named + (", …" if len(members) > 5 else "")
        proved = verdict.outcome[members] == Outcome.PROVED
        if instance.determined[members].all() or missing >= len(members) - 1:
            verdict.reason[members] = (
                f"always together: clients {names}; only the sum of their updates is known"
            )
        elif proved.all() or not instance.subspace.exact:
            verdict.confidence[members] /= len(members)
            verdict.reason[members] = f"one column fits clients {names}: always together, or only one's"
        else:
            reason = f"one column fits clients {names}, and it can be only one's"
            verdict.give(members[~proved], Outcome.UNRESOLVED, 1 / len(members), reason)

"""How many of an audit's claims are true: for recordings that keep the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.recovery import Outcome
from scenarios.audit.audit import Audit, Score


def score(found: Audit, truth: Mapping[str, NDArray[np.uint8]], rounds: NDArray[np.int64] | None) -> Score:
    """Compare the separated columns with the truth: by client if they have names, else by column.

    `truth` maps a client to its participation in all rounds, and `rounds` are those that have a row.
    """
    columns = {c: (p if rounds is None else p[rounds])[: found.rounds].tobytes() for c, p in truth.items()}
    recovery = found.recovery
    claimed = recovery.outcome != Outcome.UNRESOLVED
    guesses = [column.tobytes() for column in recovery.participation.T]
    if found.named:
        right = np.array(
            [columns.get(str(c)) == g for c, g in zip(recovery.clients, guesses, strict=True)], dtype=bool
        )
    else:
        left = Counter(columns.values())
        right = np.zeros(len(guesses), dtype=bool)
        for k in np.flatnonzero(claimed):
            right[k] = left[guesses[k]] > 0
            left[guesses[k]] -= 1
    return Score(
        clients=sum(any(column) for column in columns.values()),
        claimed=int(claimed.sum()),
        expected=found.expected_right,
        right=int((claimed & right).sum()),
        false_proofs=int(((recovery.outcome == Outcome.PROVED) & ~right).sum()),
    )

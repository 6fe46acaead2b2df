"""The result of an attack on the sums: per client a column, an update, and the confidence in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.files import load_npz, reading, write_npz

UNKNOWN = np.uint8(255)
"""Entry of a participation column for which the solver has no guess."""


class Outcome(StrEnum):
    """How certain one client's column is."""

    PROVED = "proved"
    """No other column meets the constraints, and the view confirms what the proof assumes."""
    CONSISTENT = "consistent"
    """Meets every constraint; there may be other such columns, or `reason` names another doubt."""
    LIKELY = "likely"
    """The best column found under noise; `confidence` is its estimated probability of being right."""
    UNRESOLVED = "unresolved"
    """Not recovered; `reason` says why. The entries are a guess, or UNKNOWN."""


@dataclass(frozen=True)
class Columns:
    """What a solver returns: one binary column per client of the problem, in the problem's order.

    `participation` (rounds, K) uint8 with entries 0, 1, or a whole column UNKNOWN; `outcome` (K,) holds
    `Outcome` values; `confidence` (K,) in [0, 1]; `reason` (K,) one line of text: why a client is unresolved,
    what is doubtful about a column, or what it rests on. It is empty if there is nothing to say.
    """

    participation: NDArray[np.uint8]
    outcome: NDArray[np.str_]
    confidence: NDArray[np.float64]
    reason: NDArray[np.str_]
    solver: str


@dataclass(frozen=True)
class Recovery:
    """Columns with the clients' names, and the updates that follow from them.

    `clients` (K,) ids; `participation` (rounds, K) uint8; `outcome`, `confidence`, `reason` (K,);
    `updates` (K, dim) float32, NaN for clients that are unresolved; `update_error` (K,) the standard
    error of an update's entries (root mean square over entries). `rows` (K, rows), if the model has tables of
    vectors that stand still now and then, is the probability that a client moved each row of them, one table
    after the other; 0 for clients that are unresolved.
    """

    clients: NDArray[np.generic]
    participation: NDArray[np.uint8]
    outcome: NDArray[np.str_]
    confidence: NDArray[np.float64]
    reason: NDArray[np.str_]
    updates: NDArray[np.float32]
    update_error: NDArray[np.float64]
    solver: str
    seconds: float
    confinement: str = ""
    """What kept the attack from reading the truth; empty if it ran where the truth could be read."""
    rows: NDArray[np.float32] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return arrays if self.rows is None else {**arrays, "rows": self.rows}

    def of(self, chosen: NDArray[np.bool_]) -> Recovery:
        """The recovery of the chosen clients (K,) alone."""
        return replace(
            self,
            clients=self.clients[chosen],
            participation=self.participation[:, chosen],
            outcome=self.outcome[chosen],
            confidence=self.confidence[chosen],
            reason=self.reason[chosen],
            updates=self.updates[chosen],
            update_error=self.update_error[chosen],
            rows=None if self.rows is None else self.rows[chosen],
        )

    def save(self, path: Path) -> None:
        """Everything but the time it took, so that the same recovery gives the same bytes."""
        about = {name: np.array(getattr(self, name)) for name in ("solver", "confinement")}
        write_npz(path, **self.arrays(), **about)

    @classmethod
    def load(cls, path: Path, *, seconds: float = 0.0) -> Recovery:
        """A recovery as `save` left it."""
        with reading(path, "a recovery"):
            arrays: dict[str, Any] = load_npz(path)
            solver, confinement = (str(arrays.pop(name)) for name in ("solver", "confinement"))
            recovery = cls(**arrays, solver=solver, seconds=seconds, confinement=confinement)
            recovery._check()
            return recovery

    def _check(self) -> None:
        """A `ValueError` about arrays that do not fit together."""
        per_client = (self.clients, self.outcome, self.confidence, self.reason, self.update_error)
        K = len(self.clients) if self.clients.ndim == 1 else -1
        if self.participation.ndim != 2 or self.updates.ndim != 2:
            raise ValueError("participation and updates are tables")
        if {array.shape for array in per_client} != {(K,)}:
            raise ValueError("its arrays do not have one entry per client")
        if self.rows is not None and (self.rows.ndim != 2 or len(self.rows) != K):
            raise ValueError("its rows are no table with one line per client")
        if self.participation.shape[1] != K or len(self.updates) != K:
            raise ValueError("its tables do not have one column or row per client")
        if not np.isin(self.participation, [0, 1, int(UNKNOWN)]).all():
            raise ValueError("its participation has entries other than 0 and 1")
        if not np.isin(self.outcome, list(Outcome)).all():
            raise ValueError(f"its outcomes are not all among {', '.join(Outcome)}")
        if any(array.dtype.kind != "f" for array in (self.confidence, self.updates, self.update_error)):
            raise ValueError("its confidence and its updates are no numbers")


_ARRAYS = ("clients", "participation", "outcome", "confidence", "reason", "updates", "update_error")

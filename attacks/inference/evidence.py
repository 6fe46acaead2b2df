"""The input of an inference attack: updates, from any source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """Mean updates, each with the model that it started from.

    `updates` and `starts` (n, dim) float32: row i is a mean of `clients` clients' updates, and the
    parameters that the server had sent to them. `label_shares` (n, classes) is given only if the scenario
    grants the label histogram of the examples behind each row. `rows` (n, rows) is what disaggregation found
    out about tables of vectors: the probability that each row was moved by the client. Otherwise an attack
    cannot tell whether a row was recovered, aggregated or taken from the truth, and treats all rows alike.
    """

    updates: NDArray[np.float32]
    starts: NDArray[np.float32]
    clients: int = 1
    label_shares: NDArray[np.float32] | None = None
    rows: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.updates.ndim != 2 or self.updates.shape != self.starts.shape:
            raise ValueError(f"updates {self.updates.shape}, starts {self.starts.shape}: expected (n, dim)")
        if not np.isfinite(self.updates).all():
            raise ValueError("updates: expected finite numbers; a client without an update is no evidence")

    def __len__(self) -> int:
        return len(self.updates)

"""How updates are summed before the server sees anything."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.settings import BY_NAME, Settings


class Ideal(Settings):
    """Sum and forget: what secure aggregation promises, without running the protocol."""

    name: Literal["ideal"] = "ideal"

    def sum(self, updates: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """The sum of the cohort's updates (at least one), float32, accumulated in float64."""
        total = np.zeros(updates[0].shape)
        for update in updates:
            total += update
        return total.astype(np.float32)


Aggregation = Annotated[Ideal, BY_NAME]

"""Sparse updates."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.defences.defence import UpdateDefence


class TopK(UpdateDefence):
    """Only the largest entries of an update are sent; the others are zero and are not sent later."""

    name: Literal["top_k"] = "top_k"
    never_lengthens: ClassVar[bool] = True
    fraction: Annotated[float, Field(gt=0, le=1)]
    """The fraction of the entries that is kept; at least one entry."""

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The update without its small entries."""
        kept = max(1, round(self.fraction * len(update)))
        sparse = np.zeros_like(update)
        largest = np.argpartition(-np.abs(update), kept - 1)[:kept]
        sparse[largest] = update[largest]
        return sparse

"""Coarse updates."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.defences.defence import UpdateDefence


class Quantisation(UpdateDefence):
    """Entries are rounded at random to a neighbouring step of a grid between ± the largest entry.

    The chance of rounding up makes the rounded value right on average, so sums stay unbiased.
    """

    name: Literal["quantisation"] = "quantisation"
    bits: Annotated[int, Field(ge=1, le=16)]
    """The grid has 2^bits values, ends included."""

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The update on its grid."""
        largest = np.abs(update).max()
        if largest == 0:
            return update
        step = 2 * largest / np.float32(2**self.bits - 1)
        place = (update + largest) / step
        rounded = np.floor(place + rng.random(len(update), dtype=np.float32))
        return np.asarray(np.clip(rounded, 0, 2**self.bits - 1) * step - largest, dtype=np.float32)

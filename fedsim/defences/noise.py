"""Gaussian noise on updates."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from fedsim.defences.defence import UpdateDefence


class Noise(UpdateDefence):
    """Every device adds fresh Gaussian noise to every entry of its update; it states no guarantee."""

    name: Literal["noise"] = "noise"
    sd: PositiveFloat
    """Standard deviation per entry."""

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The update with noise."""
        return update + np.float32(self.sd) * rng.standard_normal(len(update), dtype=np.float32)

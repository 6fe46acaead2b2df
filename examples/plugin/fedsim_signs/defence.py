"""A defence of updates."""

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from fedsim.defences import UpdateDefence


class Signs(UpdateDefence):
    """Send only the signs of an update, scaled by its mean magnitude."""

    strength: PositiveFloat = 1.0
    """Factor of the scale."""

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The vector (dim,) that the device sends."""
        return (self.strength * np.sign(update) * np.abs(update).mean()).astype(np.float32)

"""Clipped updates."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from fedsim.defences.defence import UpdateDefence


class Clipping(UpdateDefence):
    """An update longer than a norm is scaled down to it, by Flower's own flat clipping."""

    name: Literal["clipping"] = "clipping"
    never_lengthens: ClassVar[bool] = True
    norm: PositiveFloat

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The update, no longer than `norm`."""
        return clipped(update, self.norm)


def clipped(update: NDArray[np.float32], norm: float) -> NDArray[np.float32]:
    """A copy of the update that is no longer than `norm`."""
    from flwr.supercore.differential_privacy import clip_inputs_inplace

    copy = update.copy()
    if copy.any():
        clip_inputs_inplace([copy], norm)
    return copy

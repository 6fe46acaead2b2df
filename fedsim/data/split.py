"""A test part for data sets that come without one."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream

TestFraction = Annotated[float, Field(gt=0, lt=1)]
"""The part of the images that is set aside for testing, chosen by the scenario's seed."""


def held_out(groups: NDArray[np.generic], fraction: float, seed: int) -> NDArray[np.bool_]:
    """(n,) True for the images to test on: about `fraction` of them, and whole groups only.

    Images of one group are not told apart: all of them are tested on, or none, so that nobody's face is in
    both parts. Every image of its own group gives a plain random split. Both parts get at least a group.
    """
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise UserError(f"data.path: {len(groups)} images are too few to set some aside for testing")
    order = stream(seed, Stage.DATA).permutation(len(names))
    images_so_far = np.cumsum(np.bincount(group)[order])
    number = int(np.searchsorted(images_so_far, round(fraction * len(groups)))) + 1
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[order[: min(number, len(names) - 1)]] = True
    return chosen[group]

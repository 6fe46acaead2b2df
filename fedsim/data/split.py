"""A test part for data sets that come without one."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream

TestFraction = Annotated[float, Field(gt=0, lt=1)]
"""The part of the examples that is set aside for testing, chosen by the scenario's seed."""


def held_out(groups: NDArray[np.generic], fraction: float, seed: int) -> NDArray[np.bool_]:
    """(n,) True for the test examples: about `fraction` of them, in whole groups only.

    The examples of one group stay together, so that, for example, no person is in both parts. One group per
    example gives a plain random split. Both parts get at least one group.
    """
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise UserError(f"data.path: {len(groups)} examples are too few to set some aside for testing")
    order = stream(seed, Stage.DATA).permutation(len(names))
    examples_so_far = np.cumsum(np.bincount(group)[order])
    number = int(np.searchsorted(examples_so_far, round(fraction * len(groups)))) + 1
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[order[: min(number, len(names) - 1)]] = True
    return chosen[group]

"""From the bytes of images to the numbers that networks see, in one go."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.pixels import MIDDLE

_MIDDLE, _ONE = np.float32(MIDDLE), np.float32(1)


@numba.njit(nogil=True, cache=True)
def develop(images: NDArray[np.uint8], chosen: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """`out` (chosen, inputs): the chosen rows of `images` (n, inputs), as `scaled_` has them.

    With torch that takes a pass to select, one to convert and two to scale.
    """
    for row in range(len(chosen)):
        image, seen = images[chosen[row]], out[row]
        for i in range(len(image)):
            seen[i] = np.float32(image[i]) / _MIDDLE - _ONE

"""Which arrays of a model are trained: floats that are no buffers."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked")
"""Names of the buffers of PyTorch's BatchNorm layers: running statistics, not trained by gradients."""


def is_trained(name: str, array: NDArray[Any], skip: Sequence[str] = BUFFERS) -> bool:
    """Whether an array holds floats and its name matches no pattern in `skip`."""
    return (
        np.dtype(array.dtype).kind == "f" and array.size > 0 and not any(fnmatchcase(name, p) for p in skip)
    )

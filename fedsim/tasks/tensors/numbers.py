"""Numbers as networks see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.task import Inputs

if TYPE_CHECKING:
    import torch

NUMBER_INPUTS = Inputs(axes=("of any shape",))


def check_numbers(what: str, array: NDArray[Any]) -> None:
    """A `ValueError` if these are not finite numbers."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what}: expected numbers, got {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"{what}: expected finite numbers")


def as_numbers(stored: NDArray[Any]) -> torch.Tensor:
    """The same numbers as float32."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(stored, dtype=np.float32))

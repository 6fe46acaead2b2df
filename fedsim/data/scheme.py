"""The contract of a partition: how examples are divided among clients."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedsim.core.settings import Settings
from fedsim.data.dataset import Examples

Owned = list[NDArray[np.int64]]
"""Per client, the positions of its training examples; clients may own different numbers of them."""


class Scheme(Settings, ABC):
    """A way to divide examples among clients. `rng` alone decides who gets which."""

    @abstractmethod
    def deal(self, examples: Examples, clients: int, dataset_size: int, rng: np.random.Generator) -> Owned:
        """The positions in `examples` that each client owns; a `UserError` if there are too few."""

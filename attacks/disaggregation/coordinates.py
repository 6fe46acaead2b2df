"""Coordinates of an update made comparable before the sums are compared.

Real updates have a few coordinates with large, noisy entries that would drown all others in an inner
product. Dividing every coordinate by its standard deviation over the rounds lets each have the same say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.subspace import slices


def standardised_gram(aggregates: NDArray[Any]) -> NDArray[np.float64]:
    """(rounds, rounds) inner products of the sums with every coordinate scaled to variance 1 over rounds."""
    K = np.zeros((len(aggregates), len(aggregates)))
    for part in slices(aggregates):
        deviation = part.std(axis=0)
        scaled = part[:, deviation > 0] / deviation[deviation > 0]
        K += scaled @ scaled.T
    return K

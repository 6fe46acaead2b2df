"""What it costs to flip one entry of a binary column, in squared distance from a space.

For an orthonormal basis U and a column p with residual r = p − U Uᵀ p, flipping entry i adds s e_i with
s = 1 − 2 p_i. The squared distance then changes by 2 s r_i + (1 − ‖U_i‖²): no new projection is needed.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Float = TypeVar("_Float", np.float32, np.float64)


def unit_distances(U: NDArray[_Float]) -> NDArray[_Float]:
    """(rounds,) squared distance of each unit vector e_i from the space of `U` (rounds, rank)."""
    return np.asarray(1 - np.einsum("ij,ij->i", U, U))


def flip_costs(
    columns: NDArray[_Float], residuals: NDArray[_Float], distances: NDArray[_Float]
) -> NDArray[_Float]:
    """Changes of the squared distance when single entries are flipped, in the shape of `columns` (…, rounds).

    `residuals` (…, rounds) are the columns' parts outside the space, `distances` (rounds,) the unit vectors'.
    """
    return np.asarray(2 * (1 - 2 * columns) * residuals + distances)

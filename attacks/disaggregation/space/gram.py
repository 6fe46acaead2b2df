"""Gram matrices of the aggregates: the inner products of all pairs of rounds.

A Gram matrix is a sum over pieces of the coordinates, so that aggregates larger than memory are read piece by
piece. The variants differ in how the coordinates are scaled first: not at all (`gram`), each to variance 1
(`standardised_gram`), or decorrelated layer by layer (`whitening.whitened_gram`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.mapped_memory import slices


def gram(aggregates: NDArray[Any]) -> NDArray[np.float64]:
    """(rounds, rounds) A Aᵀ in double precision."""
    return gram_of_pieces(slices(aggregates), rounds=len(aggregates))


def standardised_gram(aggregates: NDArray[Any]) -> NDArray[np.float64]:
    """(rounds, rounds) inner products after every coordinate is scaled to variance 1 over the rounds.

    Without it, a few coordinates with large and noisy entries dominate every inner product.
    """
    return gram_of_pieces(_standardised(slices(aggregates)), rounds=len(aggregates))


def gram_of_pieces(pieces: Iterable[NDArray[Any]], *, rounds: int) -> NDArray[np.float64]:
    """(rounds, rounds) the Gram matrix of all `pieces` (rounds, some) side by side."""
    K = np.zeros((rounds, rounds))
    for piece in pieces:
        K += piece @ piece.T
    return K


def _standardised(pieces: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """The pieces with unit variance per coordinate, without the coordinates that never change."""
    for piece in pieces:
        deviation = piece.std(axis=0)
        yield piece[:, deviation > 0] / deviation[deviation > 0]

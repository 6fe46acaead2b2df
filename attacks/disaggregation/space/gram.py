"""Gram matrices of the aggregates: the inner products of all pairs of rounds.

A Gram matrix is a sum over pieces of the coordinates, so that aggregates larger than memory are read piece by
piece. The variants differ in how the coordinates are scaled first: not at all (`gram`), each to variance 1
(`standardised_gram`), or decorrelated layer by layer (`whitening.whitened_gram`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.mapped_memory import slices

Product = Callable[[NDArray[Any]], NDArray[Any]]
"""From a piece (rounds, some) to its inner products (rounds, rounds)."""

_product: ContextVar[Product | None] = ContextVar("product", default=None)


@contextmanager
def products_by(product: Product) -> Iterator[None]:
    """In the block, `product` computes the inner products of pieces, for example on a GPU.

    These products are all that grows with rounds² · dim. This package knows NumPy alone, so its caller brings
    whatever computes elsewhere.
    """
    token = _product.set(product)
    try:
        yield
    finally:
        _product.reset(token)


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
    product = _product.get() or _inner_products
    K = np.zeros((rounds, rounds))
    for piece in pieces:
        K += product(piece)
    return K


def _inner_products(piece: NDArray[Any]) -> NDArray[Any]:
    products: NDArray[Any] = piece @ piece.T
    return products


def _standardised(pieces: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """The pieces with unit variance per coordinate, without the coordinates that never change."""
    for piece in pieces:
        deviation = piece.std(axis=0)
        yield piece[:, deviation > 0] / deviation[deviation > 0]

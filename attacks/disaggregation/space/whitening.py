"""The Gram matrix of whitened aggregates.

Updates of a neural network are far from isotropic: a few directions have most of the energy of every
client's update, and of the noise. In a plain Gram matrix these directions hide all others. A layer's
gradient is a sum of products (error signal) ⊗ (input), so its covariance is close to a Kronecker product of
two small matrices. A few hundred aggregates are enough to estimate both. Multiplying by their inverse square
roots gives coordinates with nearly equal and independent variance, in signal and noise alike.

Without the layers' shapes every coordinate is divided by its own standard deviation over the rounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.gram import gram_of_pieces
from attacks.disaggregation.space.mapped_memory import in_memory

LONGEST_SIDE = 1024
"""Largest side of a covariance matrix; larger layers are cut into tiles."""
TILE_ENTRIES = 1 << 25
"""Entries of the aggregates in one tile (128 MB in single precision)."""
SAMPLES_PER_ENTRY = 10
"""Samples that a covariance matrix needs for each of its rows; with fewer, only variances are estimated."""
RIDGE = 1e-2
"""Added to the eigenvalues, relative to their mean, so that empty directions are not amplified."""


def whitened_gram(
    aggregates: NDArray[Any],
    cohort_sizes: NDArray[np.float64] | None,
    layer_shapes: Sequence[tuple[int, ...]],
) -> NDArray[np.float64]:
    """(rounds, rounds) inner products of the aggregates, less the clients' common mean, after whitening.

    The common mean μ is estimated from A ≈ m μ with the `cohort_sizes` m (rounds,). Subtracting m μ leaves
    P (G − 1 μ): the same participation, and updates without their common part. This needs the true sizes;
    without them (None) nothing is subtracted. `layer_shapes` are the shapes of the model's tensors in the
    order of the coordinates, output dimension first.
    """
    rounds = len(aggregates)
    sizes = None if cohort_sizes is None else cohort_sizes.astype(np.float32)
    tiles = _tiles(aggregates, layer_shapes)
    centred = (tile if sizes is None else _centred(tile, sizes) for tile in tiles)
    return gram_of_pieces((_whitened(tile).reshape(rounds, -1) for tile in centred), rounds=rounds)


def _tiles(
    aggregates: NDArray[Any], layer_shapes: Sequence[tuple[int, ...]]
) -> Iterator[NDArray[np.float32]]:
    """(rounds, rows, columns) pieces of the layers, each layer as a matrix with one row per output."""
    rounds, start = len(aggregates), 0
    for shape in layer_shapes:
        rows = shape[0] if shape else 1
        columns = math.prod(shape[1:])
        height = min(rows, LONGEST_SIDE)
        width = min(columns, LONGEST_SIDE, max(1, TILE_ENTRIES // (rounds * height)))
        layer = aggregates[:, start : start + rows * columns].reshape(rounds, rows, columns)
        start += rows * columns
        for top, left in itertools.product(range(0, rows, height), range(0, columns, width)):
            yield in_memory(layer[:, top : top + height, left : left + width], aggregates, np.float32)


def _centred(tile: NDArray[np.float32], sizes: NDArray[np.float32]) -> NDArray[np.float32]:
    mean = np.tensordot(sizes / max(float(sizes @ sizes), 1.0), tile, axes=1)
    return np.asarray(tile - sizes[:, None, None] * mean, dtype=np.float32)


def _whitened(tile: NDArray[np.float32]) -> NDArray[np.float32]:
    """The tile with unit covariance along its rows and columns, or with unit variances if samples are few."""
    rounds, rows, columns = tile.shape
    if min(rounds * columns / rows, rounds * rows / columns) < SAMPLES_PER_ENTRY or min(rows, columns) == 1:
        sd = tile.std(axis=0)
        return np.asarray(tile * np.divide(1, sd, out=np.zeros_like(sd), where=sd > 0))
    by_row = tile.transpose(1, 0, 2).reshape(rows, -1)
    by_row = _inverse_root(by_row @ by_row.T / by_row.shape[1]) @ by_row
    by_column = by_row.reshape(rows, rounds, columns).transpose(1, 0, 2).reshape(-1, columns)
    return np.asarray(by_column @ _inverse_root(by_column.T @ by_column / len(by_column))).reshape(tile.shape)


def _inverse_root(covariance: NDArray[Any]) -> NDArray[np.float32]:
    values, vectors = np.linalg.eigh(covariance.astype(np.float64))
    values = np.maximum(values, 0) + RIDGE * max(float(values.mean()), 1e-30)
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T, dtype=np.float32)

"""The Gram matrix of whitened aggregates.

Updates of a neural network are far from isotropic: a few directions have most of the energy of every
client's update, and of the noise. In a plain Gram matrix these directions hide all others. A layer's
gradient is a sum of products (error signal) ⊗ (input), so its covariance is close to a Kronecker product of
two small matrices. A few hundred aggregates are enough to estimate both. Multiplying by their inverse square
roots gives coordinates with nearly equal and independent variance, in signal and noise alike.

While a model learns, its layers' inputs and error signals turn, and so does the covariance of its updates. A
covariance of all rounds is then too wide for each of them. `moving` estimates it around knots, a few rounds
apart, and interpolates between their roots. Updates of one client stay alike over far more rounds then.

Without the layers' shapes every coordinate is divided by its own standard deviation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
KNOT_SPACING = 8
"""Least number of rounds between two knots of a moving covariance. On development runs of a LeNet that
learned at a rate of .05, spacings from 7 to 14 did equally well."""
KNOT_REACH = 2
"""Distance, in knots, at which a round no longer counts for a knot's covariance."""
SAMPLES_PER_ENTRY_OF_KNOT = 4
"""The same for a knot of a moving covariance, whose error is averaged over the knots."""
DISTINCT_ENTRIES = 2000
"""Entries of a layer that count in full; a larger layer counts in proportion to the root of its entries."""
RIDGE = 1e-2
"""Added to the eigenvalues, relative to their mean, so that empty directions are not amplified."""


@dataclass(frozen=True, eq=False)
class Knots:
    """Points in time at which a covariance is estimated.

    `weight` (rounds, knots): how much a round counts for each knot's covariance. `share` (rounds, knots): how
    much of each knot's root a round is multiplied by; the rows add up to 1.
    """

    weight: NDArray[np.float32]
    share: NDArray[np.float32]

    @staticmethod
    def single(rounds: int) -> Knots:
        """One knot for all rounds: the covariance does not move."""
        every = np.ones((rounds, 1), dtype=np.float32)
        return Knots(every, every)

    @staticmethod
    def spaced(rounds: int, spacing: float) -> Knots:
        """Knots about `spacing` rounds apart; a round is interpolated between its two nearest ones."""
        if rounds < 2 * KNOT_REACH * spacing:
            return Knots.single(rounds)
        times = np.linspace(0, rounds - 1, round((rounds - 1) / spacing) + 1)
        distance = np.abs(np.arange(rounds)[:, None] - times) / times[1]
        weight, share = np.maximum(1 - distance / KNOT_REACH, 0), np.maximum(1 - distance, 0)
        return Knots(weight.astype(np.float32), share.astype(np.float32))


def whitened_gram(
    aggregates: NDArray[Any],
    cohort_sizes: NDArray[np.float64] | None,
    layer_shapes: Sequence[tuple[int, ...]],
    *,
    moving: bool = False,
) -> NDArray[np.float64]:
    """(rounds, rounds) inner products of the aggregates, less the clients' common mean, after whitening.

    The common mean μ is estimated from A ≈ m μ with the `cohort_sizes` m (rounds,). Subtracting m μ leaves
    P (G − 1 μ): the same participation, and updates without their common part. This needs the true sizes;
    without them (None) nothing is subtracted. `layer_shapes` are the shapes of the model's tensors in the
    order of the coordinates, output dimension first. If the covariance is `moving`, it is estimated around
    each time, and large layers count less than their entries say: many of these say the same, and more of
    them is noise.
    """
    rounds = len(aggregates)
    sizes = None if cohort_sizes is None else cohort_sizes.astype(np.float32)
    whitened = (
        (whitened_tile(tile, sizes, moving=moving), entries)
        for tile, entries in _tiles(aggregates, layer_shapes)
    )
    if moving:
        whitened = ((_weighted(tile, entries), entries) for tile, entries in whitened)
    return gram_of_pieces((tile.reshape(rounds, -1) for tile, _ in whitened), rounds=rounds)


def whitened_tile(
    tile: NDArray[np.float32], sizes: NDArray[np.float32] | None, *, moving: bool
) -> NDArray[np.float32]:
    """A tile (rounds, rows, columns) of a layer, less the clients' common mean, after whitening."""
    return _whitened(_centred(tile, sizes), _knots(tile.shape, moving=moving))


def _weighted(tile: NDArray[np.float32], entries: int) -> NDArray[np.float32]:
    """A whitened tile of a layer with so many `entries`, scaled to the energy that the layer should have."""
    share = tile[0].size / entries
    weight = share * min(entries, math.sqrt(entries * DISTINCT_ENTRIES))
    energy = float(np.vdot(tile, tile)) / len(tile)
    return tile * np.float32(math.sqrt(weight / energy) if energy else 1.0)


def _tiles(
    aggregates: NDArray[Any], layer_shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[NDArray[np.float32], int]]:
    """(rounds, rows, columns) pieces of the layers, each layer as a matrix with one row per output, and the
    number of entries of the layer."""
    rounds, start = len(aggregates), 0
    for shape in layer_shapes:
        rows = shape[0] if shape else 1
        columns = math.prod(shape[1:])
        height = min(rows, LONGEST_SIDE)
        width = min(columns, LONGEST_SIDE, max(1, TILE_ENTRIES // (rounds * height)))
        layer = aggregates[:, start : start + rows * columns].reshape(rounds, rows, columns)
        start += rows * columns
        for top, left in itertools.product(range(0, rows, height), range(0, columns, width)):
            piece = layer[:, top : top + height, left : left + width]
            yield in_memory(piece, aggregates, np.float32), rows * columns


def _centred(tile: NDArray[np.float32], sizes: NDArray[np.float32] | None) -> NDArray[np.float32]:
    if sizes is None:
        return tile
    mean = np.tensordot(sizes / max(float(sizes @ sizes), 1.0), tile, axes=1)
    return np.asarray(tile - sizes[:, None, None] * mean, dtype=np.float32)


def _knots(shape: tuple[int, ...], *, moving: bool) -> Knots:
    """Knots for a tile of this `shape`, as dense as its number of samples allows."""
    rounds, rows, columns = shape
    if not moving:
        return Knots.single(rounds)
    longer, shorter = max(rows, columns), max(min(rows, columns), 1)
    # A knot's weights add up to its reach times the spacing.
    enough = SAMPLES_PER_ENTRY_OF_KNOT * longer / shorter / KNOT_REACH if shorter > 1 else 0
    return Knots.spaced(rounds, max(KNOT_SPACING, enough))


def _whitened(tile: NDArray[np.float32], knots: Knots) -> NDArray[np.float32]:
    """The tile with unit covariance along its rows and columns, or with unit variances if samples are few."""
    rounds, rows, columns = tile.shape
    samples = rounds * min(rows / max(columns, 1), columns / max(rows, 1))
    whiten = (
        _to_unit_covariance if min(rows, columns) > 1 and samples >= SAMPLES_PER_ENTRY else _to_unit_variance
    )
    result = np.zeros_like(tile)
    for weight, share in zip(knots.weight.T, knots.share.T, strict=True):
        near, used = np.flatnonzero(weight), share[weight > 0] > 0
        whitened = whiten(tile[near], weight[near] / weight.sum(), used)
        result[near[used]] += share[near[used], None, None] * whitened
    return result


def _to_unit_variance(
    tile: NDArray[np.float32], weight: NDArray[np.float32], used: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The `used` rounds of a tile, each entry divided by its standard deviation over the weighted rounds."""
    mean = np.tensordot(weight, tile, axes=1)
    sd = np.sqrt(np.tensordot(weight, (tile - mean) ** 2, axes=1))
    return np.asarray(tile[used] * np.divide(1, sd, out=np.zeros_like(sd), where=sd > 0))


def _to_unit_covariance(
    tile: NDArray[np.float32], weight: NDArray[np.float32], used: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The `used` rounds of a tile, times inverse roots of the weighted covariances of rows and columns."""
    rounds, rows, columns = tile.shape
    scaled = tile * np.sqrt(weight)[:, None, None]
    by_row = scaled.transpose(1, 0, 2).reshape(rows, -1)
    left = _inverse_root(by_row @ by_row.T / columns)
    by_column = (left @ by_row).reshape(rows * rounds, columns)
    right = _inverse_root(by_column.T @ by_column / rows)
    return np.asarray(left @ tile[used] @ right)


def _inverse_root(covariance: NDArray[Any]) -> NDArray[np.float32]:
    values, vectors = np.linalg.eigh(covariance.astype(np.float64))
    values = np.maximum(values, 0) + RIDGE * max(float(values.mean()), 1e-30)
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T, dtype=np.float32)

"""From what a server stored to the sums that the attack takes: means multiplied back, models taken apart."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.gram import gram_of_pieces
from attacks.disaggregation.space.mapped_memory import slices
from scenarios.audit.servers import Server

MOST_PLACES = 20
"""Directions of the model's way that are kept: it moves far along few of them."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The mean updates `means` (n, dim) that models give away, and the round of each, `rounds` (n,), from 0.

    `places` (n, q) are coordinates of the model with which each round began, along its principal directions.
    """

    means: NDArray[np.float32]
    rounds: NDArray[np.int64]
    places: NDArray[np.float64]


def multiplied(rows: NDArray[Any], factors: NDArray[Any]) -> NDArray[np.float32]:
    """(n, dim) row r times `factors[r]`, in a file without a name."""
    return filled(
        (np.asarray(row, dtype=np.float64) * factor for row, factor in zip(rows, factors, strict=True)),
        (len(rows), rows.shape[1]),
    )


def centred(rows: NDArray[Any], modulus: int) -> NDArray[np.float32]:
    """Integers modulo `modulus` (at most 2**62) as the signed numbers of least size that they stand for."""
    half = modulus // 2
    return filled(((row.astype(np.int64) % modulus + half) % modulus - half for row in rows), rows.shape)


def mean_updates(models: NDArray[Any], rounds: NDArray[np.int64], server: Server) -> Steps:
    """The mean updates that a server's models give away.

    `models` (m, dim) were saved after `rounds` (m,) rounds. A missing model costs the two rounds beside it,
    and more if the server has a memory. A second model of the same round is that of a server that begins
    again, without a memory. Entries that cannot be told in some round become zero in all.
    """
    parts: list[tuple[NDArray[np.intp], int, int]] = []
    told: list[NDArray[np.int64]] = []
    runs = np.split(np.arange(len(rounds)), np.flatnonzero(np.diff(rounds) != 1) + 1)
    for run in runs:
        first = int(rounds[run[0]])
        begins = first == 0 or (run[0] > 0 and rounds[run[0] - 1] == first)
        if not begins and server.forgets is None:
            continue
        lost = 0 if begins else int(server.forgets or 0)
        if len(run) - 1 - lost < 1:
            continue
        parts.append((run, lost, 0 if begins else first))
        told.append(np.arange(first + lost, first + len(run) - 1))
    if not parts:
        nothing = np.zeros((0, models.shape[1]), dtype=np.float32)
        return Steps(nothing, np.zeros(0, dtype=np.int64), np.zeros((0, 0)))

    def means() -> Iterator[NDArray[np.float64]]:
        for run, lost, first in parts:
            for index, mean in enumerate(server.means((models[i] for i in run), first)):
                if index >= lost:
                    yield mean

    table = filled(means(), (sum(map(len, told)), models.shape[1]))
    for column in range(0, table.shape[1], 1 << 16):
        part = table[:, column : column + (1 << 16)]
        part[:, ~np.isfinite(part).all(axis=0)] = 0
    before = np.concatenate([run[lost:-1] for run, lost, _ in parts])
    return Steps(table, np.concatenate(told), _places(models, before))


def _places(models: NDArray[Any], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """(n, q) the principal components of the `chosen` models, as far as they have any."""
    pieces = (piece[chosen] for piece in slices(models))
    with np.errstate(over="ignore", invalid="ignore"):
        gram = gram_of_pieces((piece - piece.mean(axis=0) for piece in pieces), rounds=len(chosen))
    if not np.isfinite(gram).all():
        return np.zeros((len(chosen), 0))  # The attack refuses such models, and says where.
    values, vectors = np.linalg.eigh(gram)
    kept = np.flatnonzero(values > np.finfo(np.float32).eps * values[-1])[-MOST_PLACES:]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def filled(rows: Iterable[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The rows in a memory-mapped file without a name: they may be larger than memory."""
    with tempfile.TemporaryFile(prefix="fedsim-audit-") as copy:
        table = np.memmap(copy, dtype=np.float32, mode="w+", shape=shape)
    # The attack refuses infinite entries, and says where they are.
    with np.errstate(over="ignore", invalid="ignore"):
        for place, row in enumerate(rows):
            table[place] = row
    return table

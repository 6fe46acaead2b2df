"""Binary columns among the whole-numbered ones of a space: lattice reduction.

The clients' columns are vectors of whole numbers in the column space of the sums, and all such vectors are
their whole-numbered combinations: a lattice. Less their means, the columns of independent clients are nearly
orthogonal and equally long, so it is nearly a rotated Zⁿ, in which the columns are the shortest vectors by a
factor of about √(clients / 17). Reducing a basis of the lattice (LLL, then BKZ with growing blocks) finds
them.

How often clients take part hardly matters here, while a search by reflections is lost at high rates. But the
blocks, and with them the exponent of the time, have to grow with the number of clients: about a third of it.
This is the attack of Nguyen and Stern (1999) on hidden subset sums, on real sums instead of modular ones. It
lives on exact arithmetic: noise is beyond it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

ROUNDS_PER_CLIENT = 1.5
"""Rounds in which whole numbers are asked for at first, drawn at random; the space gives the others."""
SPARE_BITS = 10
"""Bits by which a column that is not whole has to look longer than it must, for reduction is not perfect."""
BLOCKS = (2, 20, 30, 35, 40, 44, 48, 52, 56, 60)
"""Block sizes in turn; the time grows about fivefold for every five, beyond thirty."""
TOURS = 4
PRUNED = 36
"""From this size on, blocks are reduced by smaller ones first and searched along their likely half."""
ORDERS = 20
"""Random orders in which columns that are not binary are brought nearer, to see if they become so."""
WHOLE = 0.2
"""How far from whole numbers the entries in other rounds may be."""


def available() -> bool:
    """Whether fpylll is installed, which reduces lattices."""
    return find_spec("fpylll") is not None


def _library() -> ModuleType:
    """fpylll. Its import takes Ctrl-C over; a worker process that ignores it goes on doing so."""
    before = signal.getsignal(signal.SIGINT)
    import fpylll
    import fpylll.fplll.bkz_param

    if before is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
    return cast(ModuleType, fpylll)


def binary_columns(
    basis: NDArray[np.float64], *, max_block: int, rng: np.random.Generator
) -> Iterator[NDArray[np.uint8]]:
    """(n, rounds) independent binary columns in the space of an orthonormal `basis` (rounds, rank).

    One set for every block size up to `max_block`, mostly a larger one each time; `rank` of them are all.
    """
    lattice = whole_columns(basis, rng)
    if not len(lattice):
        return
    fpylll = _library()
    BKZ = fpylll.BKZ
    fpylll.FPLLL.set_random_seed(int(rng.integers(1 << 31)))
    rounds, ones = len(basis), lattice.sum(axis=1, keepdims=True)
    # Lengths are those of the columns less their means; the number of ones goes along, to undo that.
    rows = _matrix(np.hstack((rounds * lattice - ones, ones)))
    for block in BLOCKS:
        if block > max_block:
            return
        flags = BKZ.AUTO_ABORT | BKZ.MAX_LOOPS
        BKZ.reduction(rows, BKZ.Param(block, strategies=_strategies(block), flags=flags, max_loops=TOURS))
        reduced = _array(rows)
        yield completed((reduced[:, :-1] + reduced[:, -1:]) // rounds, rng)


def whole_columns(basis: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """(rank, rounds) a basis of the lattice of whole-numbered columns; none if the space is known too poorly.

    Reduction of [K N | I], where N (some rounds, some − rank) spans what is orthogonal to the space in these
    rounds: a whole-numbered x that is in the space costs ‖x‖ only, any other about K besides.
    """
    rounds, rank = basis.shape
    some = min(rounds, int(np.ceil(ROUNDS_PER_CLIENT * rank)))
    chosen = np.sort(rng.permutation(rounds)[:some])
    outside = np.linalg.qr(basis[chosen], mode="complete")[0][:, rank:]
    bits = SPARE_BITS + int(np.ceil(rank / (some - rank) * np.log2(max(np.sqrt(some) / 2, 2))))
    if bits > 52:
        return np.zeros((0, rounds), dtype=np.int64)
    rows = _matrix(np.hstack((np.rint(2.0**bits * outside), np.eye(some))))
    _library().LLL.reduction(rows)
    x = _array(rows)[:, -some:]
    inside = x[np.argsort(np.linalg.norm(x @ outside, axis=1), kind="stable")[:rank]]
    everywhere = inside @ (basis @ np.linalg.pinv(basis[chosen])).T
    whole = np.rint(everywhere)
    exact = np.abs(everywhere - whole).max() < WHOLE and np.array_equal(whole[:, chosen], inside)
    return whole.astype(np.int64) if exact else np.zeros((0, rounds), dtype=np.int64)


def completed(columns: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """(n, rounds) the binary ones among `columns`, and others that become binary with some of those added.

    Reduced rows are short beside what the rows before them leave of them, and the last of a lattice may have
    many others added to them. Each is brought near zero (its mean aside) along the known columns in random
    orders, and from there near ½ in all rounds, where binary columns are nearest.
    """
    columns = columns * np.where(columns.sum(axis=1, keepdims=True) < 0, -1, 1)
    binary = ((columns == 0) | (columns == 1)).all(axis=1)
    known, others = columns[binary], list(columns[~binary])
    for _ in range(ORDERS if len(known) else 0):
        left = []
        for other, near in zip(others, _nearest_plane(others, rng.permutation(known)), strict=True):
            forms = [_nearest_to_half(form, known) for form in (near, -near)]
            found = [form for form in forms if form.min() == 0 and form.max() == 1]
            known = np.concatenate((known, found[:1])) if found else known
            left += [] if found else [other]
        others = left
    return np.asarray(known, dtype=np.uint8)


def _nearest_plane(columns: list[NDArray[np.int64]], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each of the columns less whole multiples of the known ones, the last one first (Babai)."""
    X, K = np.array(columns, dtype=np.float64).reshape(-1, known.shape[1]), known.astype(np.float64)
    Q, R = np.linalg.qr((K - K.mean(axis=1, keepdims=True)).T)
    inside = (X - X.mean(axis=1, keepdims=True)) @ Q
    for j in reversed(range(len(K))):
        times = np.rint(inside[:, j] / R[j, j])[:, None]
        inside -= times * R[:, j]
        X -= times * K[j]
    return X.astype(np.int64)


def _nearest_to_half(column: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """A column with one known column after the other added or subtracted, the best one first."""
    size = known.sum(axis=1)
    while True:
        slope = known @ (2 * column - 1)
        change = np.stack((size + slope, size - slope))  # of the squared distance from ½
        sign, which = np.unravel_index(int(change.argmin()), change.shape)
        if change[sign, which] >= 0:
            return column
        column = column + (1 - 2 * int(sign)) * known[which]


def _strategies(block: int) -> list[Any]:
    Pruning, Strategy = _library().Pruning, _library().fplll.bkz_param.Strategy
    plain = [Strategy(size) for size in range(min(block + 1, PRUNED))]
    return plain + [
        Strategy(size, [20] if size < 42 else [20, 30], [Pruning.LinearPruningParams(size, size // 2)])
        for size in range(PRUNED, block + 1)
    ]


def _matrix(rows: NDArray[Any]) -> Any:
    return _library().IntegerMatrix.from_matrix(rows.astype(np.int64).tolist())


def _array(rows: Any) -> NDArray[np.int64]:
    return np.array([list(row) for row in rows], dtype=np.int64)

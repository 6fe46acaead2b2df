"""Binary columns of an exact space by lattice reduction.

The integer vectors in the column space of the aggregates form a lattice, which the clients' columns generate.
After subtraction of their means, the columns of independent clients are nearly orthogonal and equally long:
the lattice is nearly a rotated Zⁿ, and the columns are its shortest vectors by a factor of about
√(clients / 17). Reducing a basis of the lattice (LLL, then BKZ with growing blocks) finds them.

The participation rate hardly matters here, while reflections fail at high rates. But the block size, which is
the exponent of the time, must grow with the number of clients: about a third of it. This is the attack of
Nguyen and Stern (1999) on hidden subset sums, for real instead of modular sums. It needs exact arithmetic and
does not tolerate noise.
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
"""Random rounds, per client, in which entries must be integers; the space determines the other rounds."""
SPARE_BITS = 10
"""Extra bits of penalty for vectors outside the space, because reduction is not perfect."""
BLOCKS = (2, 20, 30, 35, 40, 44, 48, 52, 56, 60)
"""Block sizes in turn; beyond 30 the time grows about fivefold for every five."""
TOURS = 4
"""Most BKZ tours for each block size."""
PRUNED_BLOCK = 36
"""Block size from which blocks are preprocessed with smaller ones, and enumerated with linear pruning."""
RANDOM_ORDERS = 20
"""Random orders of the known columns in which the others are reduced against them."""
INTEGER_TOLERANCE = 0.2
"""Largest distance from an integer of the entries in the other rounds."""
CONSTANT = 1e-9
"""Distance of a centred column from the span of others below which it adds nothing: the column of ones."""


def available() -> bool:
    """Whether fpylll, the library for lattice reduction, is installed."""
    return find_spec("fpylll") is not None


def _library() -> ModuleType:
    """Import fpylll, which replaces the handler of Ctrl-C, and restore it in a worker that ignores Ctrl-C."""
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

    Yields one set for every block size up to `max_block`, mostly a larger one each time. A set of `rank`
    columns is complete.
    """
    lattice = integer_columns(basis, rng)
    if not len(lattice):
        return
    fpylll = _library()
    BKZ = fpylll.BKZ
    fpylll.FPLLL.set_random_seed(int(rng.integers(1 << 31)))
    rounds, ones = len(basis), lattice.sum(axis=1, keepdims=True)
    # Lengths are those of the centred columns. The number of ones is an extra entry, to undo the centring.
    rows = _matrix(np.hstack((rounds * lattice - ones, ones)))
    for block in BLOCKS:
        if block > max_block:
            return
        flags = BKZ.AUTO_ABORT | BKZ.MAX_LOOPS
        BKZ.reduction(rows, BKZ.Param(block, strategies=_strategies(block), flags=flags, max_loops=TOURS))
        reduced = _array(rows)
        yield completed((reduced[:, :-1] + reduced[:, -1:]) // rounds, rng)


def integer_columns(basis: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """(rank, rounds) a basis of the lattice of integer columns; empty if the space is not accurate enough.

    It is the reduction of [K N | I], where N (some, some − rank) spans the orthogonal complement of the space
    in some rounds. An integer vector x in the space has length ‖x‖; any other is longer by about K.
    """
    rounds, rank = basis.shape
    some = min(rounds, int(np.ceil(ROUNDS_PER_CLIENT * rank)))
    if some == rank:  # every column lies in the space
        return np.zeros((0, rounds), dtype=np.int64)
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
    integers = np.rint(everywhere)
    near = np.abs(everywhere - integers).max() < INTEGER_TOLERANCE
    exact = near and np.array_equal(integers[:, chosen], inside)
    return integers.astype(np.int64) if exact else np.zeros((0, rounds), dtype=np.int64)


def completed(columns: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """(n, rounds) the binary ones among `columns`, and others that become binary when these are added.

    The last rows of a reduced basis may contain many others. Each row that is not binary is reduced against
    the known columns in random orders (its mean aside), and then moved towards ½ in all rounds: among all
    integer columns, binary ones are nearest to ½.
    """
    columns = columns * np.where(columns.sum(axis=1, keepdims=True) < 0, -1, 1)
    binary = ((columns == 0) | (columns == 1)).all(axis=1)
    known, others = columns[binary], list(columns[~binary])
    for _ in range(RANDOM_ORDERS if len(known) else 0):
        left = []
        for other, near in zip(others, _nearest_plane(others, rng.permutation(known)), strict=True):
            forms = [_nearest_to_half(form, known) for form in (near, -near)]
            found = [form for form in forms if form.min() == 0 and form.max() == 1]
            known = np.concatenate((known, found[:1])) if found else known
            left += [] if found else [other]
        others = left
    return np.asarray(known, dtype=np.uint8)


def _nearest_plane(columns: list[NDArray[np.int64]], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each column less integer multiples of the known ones, the last one first (Babai's nearest plane)."""
    X, K = np.array(columns, dtype=np.float64).reshape(-1, known.shape[1]), known.astype(np.float64)
    Q, R = np.linalg.qr((K - K.mean(axis=1, keepdims=True)).T)
    inside = (X - X.mean(axis=1, keepdims=True)) @ Q
    for j in np.flatnonzero(np.abs(np.diag(R)) > CONSTANT)[::-1].tolist():
        times = np.rint(inside[:, j] / R[j, j])[:, None]
        inside -= times * R[:, j]
        X -= times * K[j]
    return X.astype(np.int64)


def _nearest_to_half(column: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """A column plus or minus known columns, the best one first, while that brings it nearer to ½."""
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
    plain = [Strategy(size) for size in range(min(block + 1, PRUNED_BLOCK))]
    return plain + [
        Strategy(size, [20] if size < 42 else [20, 30], [Pruning.LinearPruningParams(size, size // 2)])
        for size in range(PRUNED_BLOCK, block + 1)
    ]


def _matrix(rows: NDArray[Any]) -> Any:
    return _library().IntegerMatrix.from_matrix(rows.astype(np.int64).tolist())


def _array(rows: Any) -> NDArray[np.int64]:
    return np.array([list(row) for row in rows], dtype=np.int64)

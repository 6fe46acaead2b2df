"""Proof that a column is the only one that meets its constraints.

Let p be a binary column in the space of P with the right counts, and q another. Then d = q − p lies in the
space too, sums to zero over every window with an exact count, is 0 where the counts fix the entry, and is
never negative where p is 0 nor positive where p is 1. Suppose there is a v orthogonal to the space and a
number y_w for every counted window such that w = v + y has the sign of 1 − 2p on every entry that is not
fixed. Then ⟨v, d⟩ = ⟨w, d⟩ = Σ |w_i| |d_i| ≥ min |w_i| · ‖d‖, while ⟨v, d⟩ = 0: so d = 0 (Farkas' lemma).
If the space is only known up to an angle δ, ⟨v, d⟩ ≤ δ ‖v‖ ‖d‖, and the proof holds when min |w_i| > δ ‖v‖.

Such a v exists exactly if p is the only solution of the *linear* relaxation. That includes every case in
which the linear equations alone have full column rank. An accelerated gradient method looks for v, for all
clients at once; it minimises the amount by which signs are wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.space.affine import AffineSpace
from attacks.disaggregation.space.subspace import row_blocks
from attacks.disaggregation.workers import BlockWorkers

ANGLE_SAFETY = 100.0
"""The margin must exceed the estimated angle by this factor."""
LEAST_ANGLE = 1e-9
"""Least angle that is assumed, however precise the space seems."""
LEAST_MARGIN = 1e-2
"""Least |w_i| of a proof. The search aims at 1; much smaller values may be rounding errors."""
PROOF_ITERATIONS = 200
PROOF_CHECK_EVERY = 5
PROOF_PATIENCE = 40
"""Iterations without a new proof after which the search ends."""


def unique(
    instance: Instance, columns: NDArray[np.uint8], clients: NDArray[np.intp], workers: BlockWorkers
) -> NDArray[np.bool_]:
    """(n,) whether no other binary column lies in the space and has the counts of the client.

    `columns` (n, rounds) belong to the `clients` (n,). They must lie in the space and have the counts. True
    is a proof, provided that the space holds every client's column (see `verdict`). False says nothing.
    """
    windows = instance.windows.of(clients)
    space = AffineSpace(windows, instance.subspace)
    _ = space.B  # computed once, before the threads share it
    blocks = [np.arange(len(columns))[block] for block in row_blocks(len(columns))]
    tasks = [(columns[block], windows.of(block)) for block in blocks]
    return np.concatenate([np.zeros(0, dtype=np.bool_), *workers.map(_search, space, tasks)])


def _search(space: AffineSpace, block: tuple[NDArray[np.uint8], Windows]) -> NDArray[np.bool_]:
    columns, windows = block
    signs = _Signs(columns, windows, lift=not space.cut)
    proved = np.zeros(len(columns), dtype=np.bool_)
    active = np.arange(len(columns))
    w = np.zeros(columns.shape, dtype=np.float32)
    ahead, momentum, last_new = w, 1.0, 0
    for iteration in range(1, PROOF_ITERATIONS + 1):
        short = signs.shortfall(ahead, active)
        before, w = w, np.asarray(ahead + short - (short @ space.B) @ space.B.T, dtype=np.float32)
        momentum, last = (1 + np.sqrt(1 + 4 * momentum**2)) / 2, momentum
        ahead = w + np.float32((last - 1) / momentum) * (w - before)
        if iteration % PROOF_CHECK_EVERY:
            continue
        right = signs.margin(w, active) > LEAST_MARGIN
        if right.any():
            proved[active[right]] = _holds(w[right], active[right], signs, space)
            settled = proved[active]
            w, ahead, active = w[~settled], ahead[~settled], active[~settled]
            last_new = iteration if settled.any() else last_new
        if not len(active) or iteration - last_new >= PROOF_PATIENCE:
            break
    return proved


def _holds(
    w: NDArray[np.float32], clients: NDArray[np.intp], signs: _Signs, space: AffineSpace
) -> NDArray[np.bool_]:
    """Check the proofs themselves, in double precision."""
    v = space.orthogonal_part(w.astype(np.float64))
    allowed = ANGLE_SAFETY * max(space.subspace.angle, LEAST_ANGLE) * np.linalg.norm(v, axis=1)
    return np.asarray(signs.margin(v, clients, lift=True) > np.maximum(allowed, LEAST_MARGIN))


class _Signs:
    """The required signs of w = v + y: positive where the column is 0, negative where it is 1.

    For a given v the best y moves the midpoint between a window's zeros and ones to 0 (`lift`).
    """

    def __init__(self, columns: NDArray[np.uint8], windows: Windows, *, lift: bool) -> None:
        self.sign = 1 - 2 * columns.astype(np.float32)
        self.free = np.isnan(windows.known())
        self.windows, self.lift = windows, lift
        self.counted = ~np.isnan(windows.count) & (windows.sd == 0)

    def shortfall(self, v: NDArray[np.float32], clients: NDArray[np.intp]) -> NDArray[np.float32]:
        """(K, rounds) the change of v that gives every entry the right sign and a size of at least 1."""
        sign = self.sign[clients]
        w = self._lifted(v, clients) if self.lift else v
        return np.maximum(1 - sign * w, 0) * sign * self.free[clients]

    def margin(
        self, v: NDArray[Any], clients: NDArray[np.intp], *, lift: bool = False
    ) -> NDArray[np.float64]:
        """(K,) the smallest entry of w, counted positive if its sign is right."""
        w = self._lifted(v, clients) if lift or self.lift else v
        return np.asarray(np.where(self.free[clients], w * self.sign[clients], np.inf).min(axis=1))

    def _lifted(self, v: NDArray[Any], clients: NDArray[np.intp]) -> NDArray[Any]:
        sign, free, windows = self.sign[clients], self.free[clients], self.windows.of(clients)
        low = windows.inside(np.where(free & (sign > 0), v, np.inf), fill=np.inf).min(axis=2, initial=np.inf)
        high = windows.inside(np.where(free & (sign < 0), v, -np.inf), fill=-np.inf).max(
            axis=2, initial=-np.inf
        )
        both = self.counted[clients] & np.isfinite(low) & np.isfinite(high)
        y = np.where(both, (np.where(both, low, 0) + np.where(both, high, 0)) / -2, 0)
        return np.asarray(v + windows.spread(y.astype(v.dtype), fill=0.0))

"""A step of collapsed Gibbs sampling in which two clients exchange a stretch of their columns.

`gibbs` has the notation and the other steps. Its exchange of tails has one cut. Where two clients took each
other's place for a while, both ends of the stretch must change at once: after one of them, the state would be
far less likely.

With d the difference of the two columns, exchanging a stretch turns the sign of d there. Of Ω = … + E/2 · κ ∘
d dᵀ, the products of d inside the stretch with d before and after it change their sign. κ is exponential in
the distance, so both are products of two vectors, and the change of Ω has rank four. All inner products of
these vectors are sums over blocks of one m × m matrix, where m is the number of rounds in which the clients
differ. So the likelihood of every stretch takes a fixed number of operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise import covariance_changes, gibbs
from attacks.disaggregation.noise.covariance_changes import IMPOSSIBLE, add, exchange, exchange_gain
from attacks.disaggregation.noise.gibbs import tallies
from fedsim.core.compilation import compiled

_compiled = compiled(gibbs, covariance_changes, **covariance_changes.OPTIONS)

HOPELESS = -30.0
"""Change of the counts' log-likelihood below which a stretch is not judged by the sums: it cannot be right,
and judging takes most of the time."""


@_compiled
def _cumulated(table: NDArray[np.float64], Z: NDArray[np.float64], at: Any, x: Any, y: Any, m: int) -> None:
    """table[i, j] = Σ over a < i and b < j of x_a Z[at_a, at_b] y_b."""
    for a in range(m):
        row = 0.0
        for b in range(m):
            row += x[a] * Z[at[a], at[b]] * y[b]
            table[a + 1, b + 1] = table[a, b + 1] + row


@_compiled
def _block(table: NDArray[np.float64], a: int, b: int, c: int, d: int) -> float:
    """The sum over the rows a to b and the columns c to d."""
    return float(table[b, d] - table[a, d] - table[b, c] + table[a, c])


@_compiled
def _products(uu: Any, uw: Any, ww: Any, i: int, j: int, m: int, left: Any, column: int) -> None:
    """Write C Vᵀ Z V (4, 4) into `left` from this column on.

    V holds u before, w inside, u inside and w after the stretch from i to j; C exchanges neighbours.
    """
    g01, g23 = _block(uw, 0, i, i, j), _block(uw, i, j, j, m)
    g02, g13 = _block(uu, 0, i, i, j), _block(ww, i, j, j, m)
    g03, g12 = _block(uw, 0, i, j, m), _block(uw, i, j, i, j)
    left[1, column], left[0, column + 1] = _block(uu, 0, i, 0, i), _block(ww, i, j, i, j)
    left[3, column + 2], left[2, column + 3] = _block(uu, i, j, i, j), _block(ww, j, m, j, m)
    left[0, column], left[1, column + 1], left[2, column + 2], left[3, column + 3] = g01, g01, g23, g23
    left[1, column + 2], left[3, column] = g02, g02
    left[1, column + 3], left[2, column] = g03, g03
    left[0, column + 2], left[3, column + 1] = g12, g12
    left[0, column + 3], left[2, column + 1] = g13, g13


@_compiled
def _misfit(both: NDArray[np.float64]) -> float:
    """log det(1 + X) − tr((1 + X)⁻¹ Y) for X and Y (4, 4) side by side in `both`, which is overwritten."""
    determinant = 1.0
    for k in range(4):
        both[k, k] += 1
    for k in range(4):
        pivot = k
        for r in range(k + 1, 4):
            if abs(both[r, k]) > abs(both[pivot, k]):
                pivot = r
        if pivot != k:
            determinant = -determinant
            for c in range(8):
                both[k, c], both[pivot, c] = both[pivot, c], both[k, c]
        determinant *= both[k, k]
        if both[k, k] == 0:
            return -IMPOSSIBLE
        for r in range(4):
            if r != k:
                factor = both[r, k] / both[k, k]
                for c in range(k, 8):
                    both[r, c] -= factor * both[k, c]
    if determinant <= 0:
        return -IMPOSSIBLE
    misfit = np.log(determinant)
    for k in range(4):
        misfit -= both[k, 4 + k] / both[k, k]
    return float(misfit)


@_compiled
def swap_stretches(
    P: NDArray[np.uint8],
    W: NDArray[np.float64],
    H: NDArray[np.float64],
    position: NDArray[np.float64],
    energies: NDArray[np.float64],
    window: NDArray[np.int64],
    weight: NDArray[np.float64],
    odds: NDArray[np.float64],
    coordinates: float,
    pairs: NDArray[np.int64],
    uniform: NDArray[np.float64],
) -> int:
    """Visit `pairs` (q, 2) of clients, and draw the stretch in which they exchange columns, or none.

    Arguments and guarantees are those of `gibbs.swap_tails`, but for stretches that are `HOPELESS` by the
    counts: these are not drawn.
    """
    R = P.shape[1]
    at, sign, u, w = np.empty(R, np.int64), np.empty(R, np.int64), np.empty(R), np.empty(R)
    tables = np.zeros((6, R + 1, R + 1))
    both, f, g = np.empty((4, 8)), np.empty(R), np.empty(R)
    score, by_counts = np.empty(R * (R + 1) // 2), np.empty(R * (R + 1) // 2)
    tally = tallies(P, window, weight.shape[1])
    behind, ones, present = np.empty(2), np.empty(2, np.int64), np.empty(2)
    exchanges = 0
    for q in range(len(pairs)):
        one, two = pairs[q, 0], pairs[q, 1]
        energy = 0.5 * (energies[one] + energies[two])
        m = 0
        for r in range(R):
            if P[pairs[q, 0], r] != P[pairs[q, 1], r]:
                at[m], sign[m] = r, 1 if P[pairs[q, 0], r] == 1 else -1
                u[m], w[m] = sign[m] * np.exp(position[r]), -energy * sign[m] * np.exp(-position[r])
                m += 1
        if m < 2:
            continue
        for z, Z in enumerate((W, H)):
            _cumulated(tables[3 * z], Z, at, u, u, m)
            _cumulated(tables[3 * z + 1], Z, at, u, w, m)
            _cumulated(tables[3 * z + 2], Z, at, w, w, m)
        best, s = 0.0, 0
        for i in range(m):
            # Of each client: the log-odds of windows behind, and the change and log-odds of the present one.
            behind[:], ones[:], present[:] = 0.0, 0, 0.0
            for j in range(i + 1, m + 1):
                r = at[j - 1]
                for c in range(2):
                    k = pairs[q, c]
                    v = window[k, r]
                    if j - 1 > i and v != window[k, at[j - 2]]:
                        behind[c] += present[c]
                        ones[c] = 0
                    ones[c] += -sign[j - 1] if c == 0 else sign[j - 1]
                    behind[c] += (-sign[j - 1] if c == 0 else sign[j - 1]) * odds[k, r]
                    present[c] = weight[k, v, tally[k, v] + ones[c]] - weight[k, v, tally[k, v]]
                by_counts[s] = behind[0] + behind[1] + present[0] + present[1]
                if by_counts[s] < HOPELESS:
                    score[s] = IMPOSSIBLE
                else:
                    _products(tables[0], tables[1], tables[2], i, j, m, both, 0)
                    _products(tables[3], tables[4], tables[5], i, j, m, both, 4)
                    score[s] = by_counts[s] - 0.5 * coordinates * _misfit(both)
                best = max(best, score[s])
                s += 1
        total = np.exp(-best)
        for x in range(s):
            score[x] = np.exp(score[x] - best)
            total += score[x]
        draw, chosen = uniform[q, 0] * total, 0
        while chosen < s and draw >= score[chosen]:
            draw -= score[chosen]
            chosen += 1
        if chosen == s:
            continue
        i, x = 0, chosen
        while x >= m - i:
            x -= m - i
            i += 1
        j = i + 1 + x
        own = energies[one], energies[two]
        if own[0] != own[1]:
            gain = exchange_gain(P[one], P[two], W, H, position, own, at[i:j], coordinates)
            if np.log(uniform[q, 1] * score[chosen]) + best >= by_counts[chosen] + gain:
                continue
        exchanges += 1
        for y in range(i, j):
            tally[one, window[one, at[y]]] -= sign[y]
            tally[two, window[two, at[y]]] += sign[y]
        if own[0] != own[1]:
            exchange(P[one], P[two], W, H, position, own, at[i:j], coordinates)
            continue
        for part in range(2):
            # First the products of the stretch with all before it, then those with all after it.
            cut = np.exp(position[at[i if part == 0 else j - 1]])
            f[:], g[:] = 0.0, 0.0
            for y in range(m):
                inside = i <= y < j
                if (y < i) if part == 0 else inside:
                    f[at[y]] = u[y] / cut
                if inside if part == 0 else (y >= j):
                    g[at[y]] = w[y] * cut
            add(W, H, f, g)
        for y in range(i, j):
            P[one, at[y]], P[two, at[y]] = P[two, at[y]], P[one, at[y]]
    return exchanges

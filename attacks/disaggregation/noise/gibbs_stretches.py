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


LEAST_DETERMINANT = 1e-9
"""Least determinant of Ω, relative to the present one, after the first half of a change: below this, rounding
errors would decide."""


@_compiled
def _cumulate(tables: NDArray[np.float64], Z: NDArray[np.float64], at: Any, u: Any, w: Any, m: int) -> None:
    """tables[c, i, j] = Σ over a < i and b < j of x_a Z[at_a, at_b] y_b, for xy = uu, uw and ww."""
    for a in range(m):
        uu, uw, ww = 0.0, 0.0, 0.0
        for b in range(m):
            z = Z[at[a], at[b]]
            uu += u[a] * z * u[b]
            uw += u[a] * z * w[b]
            ww += w[a] * z * w[b]
            tables[0, a + 1, b + 1] = tables[0, a, b + 1] + uu
            tables[1, a + 1, b + 1] = tables[1, a, b + 1] + uw
            tables[2, a + 1, b + 1] = tables[2, a, b + 1] + ww


@_compiled
def _block(table: NDArray[np.float64], a: int, b: int, c: int, d: int) -> float:
    """The sum over the rows a to b and the columns c to d."""
    return float(table[b, d] - table[a, d] - table[b, c] + table[a, c])


@_compiled
def _products(tables: NDArray[np.float64], i: int, j: int, m: int) -> Any:
    """VᵀZV, where V holds u before, w inside, u inside and w after the stretch from i to j.

    It is symmetric: 00, 01, 11 in the first block of 2 × 2, 02, 03, 12, 13 beside it, 22, 23, 33 in the last.
    """
    uu, uw, ww = tables[0], tables[1], tables[2]
    first = _block(uu, 0, i, 0, i), _block(uw, 0, i, i, j), _block(ww, i, j, i, j)
    beside = _block(uu, 0, i, i, j), _block(uw, 0, i, j, m), _block(uw, i, j, i, j), _block(ww, i, j, j, m)
    last = _block(uu, i, j, i, j), _block(uw, i, j, j, m), _block(ww, j, m, j, m)
    return first, beside, last


@_compiled
def _misfit(of_w: Any, of_h: Any) -> float:
    """log det(C + A) − tr((C + A)⁻¹ B), from the products A and B of `_products`; C exchanges neighbours.

    The change of Ω is V C Vᵀ, and C is its own inverse. Gaussian elimination in blocks of 2 × 2.
    """
    (p00, p01, p11), (q00, q01, q10, q11), (r00, r01, r11) = of_w
    (a00, a01, a11), (b00, b01, b10, b11), (c00, c01, c11) = of_h
    p01 += 1
    r01 += 1
    first = p00 * p11 - p01 * p01
    if abs(first) < LEAST_DETERMINANT:
        return -IMPOSSIBLE
    # T = P⁻¹Q
    over = 1 / first
    t00, t01 = over * (p11 * q00 - p01 * q10), over * (p11 * q01 - p01 * q11)
    t10, t11 = over * (p00 * q10 - p01 * q00), over * (p00 * q11 - p01 * q01)
    # R − QᵀT
    r00 -= q00 * t00 + q10 * t10
    r01 -= q00 * t01 + q10 * t11
    r11 -= q01 * t01 + q11 * t11
    second = r00 * r11 - r01 * r01
    if first * second <= 0:
        return -IMPOSSIBLE
    # What is left of B after the same elimination.
    x00, x01 = a00 * t00 + a01 * t10 - b00, a00 * t01 + a01 * t11 - b01
    x10, x11 = a01 * t00 + a11 * t10 - b10, a01 * t01 + a11 * t11 - b11
    c00 += t00 * (x00 - b00) + t10 * (x10 - b10)
    c01 += t00 * x01 + t10 * x11 - b00 * t01 - b10 * t11
    c11 += t01 * (x01 - b01) + t11 * (x11 - b11)
    fit = over * (p11 * a00 - 2 * p01 * a01 + p00 * a11)
    fit += (r11 * c00 - 2 * r01 * c01 + r00 * c11) / second
    return float(np.log(first * second) - fit)


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
    of_w, of_h = np.zeros((3, R + 1, R + 1)), np.zeros((3, R + 1, R + 1))
    f, g = np.empty(R), np.empty(R)
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
        _cumulate(of_w, W, at, u, w, m)
        _cumulate(of_h, H, at, u, w, m)
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
                    misfit = _misfit(_products(of_w, i, j, m), _products(of_h, i, j, m))
                    score[s] = by_counts[s] - 0.5 * coordinates * misfit
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

"""Collapsed Gibbs sampling of the participation matrix: the updates are integrated out.

Under the Gaussian process of `round_model` the aggregates have covariance Ω(P), and a matrix P has the
log-likelihood −D/2 · (log det Ω + tr(Ω⁻¹K)), where K is the Gram matrix of the aggregates and D the number of
independent coordinates. There are two kinds of steps, and each draws from the posterior given all the rest:

- `flip_entries`: one entry becomes 0 or 1. For client k in round r this changes Ω by ±(e vᵀ + v eᵀ), with e
  the r-th unit vector and v = energy · κ(r, ·) ∘ p_k (half of the energy at r itself).
- `swap_tails`: two clients exchange their columns from some round on. Single flips would have to pass through
  states that are far less likely. With d the difference of the two columns, Ω changes by the products of d
  before the cut with d after it. κ is exponential in the distance, so it is a product of a factor before and
  a factor after the cut, and the change is −(f gᵀ + g fᵀ).

So every change has rank two. The likelihood of all alternatives follows from a few entries of Ω⁻¹ and
Ω⁻¹KΩ⁻¹, which are updated in place when a step is taken (`covariance_changes`).

Counts enter as `weight` (clients, windows + 1, n): the log-likelihood of what was published about a client's
window if the client took part 0, 1, … times in it. The last window stands for rounds outside of all, and its
weights are 0. `window` (clients, rounds) numbers the window of an entry. `odds` (clients, rounds) are prior
log-odds of an entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise import covariance_changes
from attacks.disaggregation.noise.covariance_changes import add, exchange, exchange_gain, log_likelihood
from fedsim.core.compilation import compiled

_compiled = compiled(covariance_changes, **covariance_changes.OPTIONS)


@_compiled
def tallies(P: NDArray[np.uint8], window: NDArray[np.int64], windows: int) -> Any:
    """(clients, windows) number of ones in each window."""
    tally = np.zeros((P.shape[0], windows), np.int64)
    for k in range(P.shape[0]):
        for r in range(P.shape[1]):
            tally[k, window[k, r]] += P[k, r]
    return tally


@_compiled
def flip_entries(
    P: NDArray[np.uint8],
    W: NDArray[np.float64],
    H: NDArray[np.float64],
    kernel: NDArray[np.float64],
    energy: NDArray[np.float64],
    window: NDArray[np.int64],
    weight: NDArray[np.float64],
    odds: NDArray[np.float64],
    missing: NDArray[np.float64],
    cohort_precision: float,
    coordinates: float,
    order: NDArray[np.int64],
    rounds: NDArray[np.int64],
    uniform: NDArray[np.float64],
) -> Any:
    """Visit the entries of P (clients, rounds), client by client in this `order`, in the given `rounds`.

    W and H (rounds, rounds) belong to P. `missing` (rounds,) are cohort sizes less participants, known with
    this precision (1/variance). All four stay up to date. `uniform` (clients, rounds) are random numbers.
    Returns how many entries of each round changed (rounds,).
    """
    R = P.shape[1]
    ones, v, f, g = np.empty(R, np.int64), np.empty(R), np.empty(R), np.empty(R)
    tally = tallies(P, window, weight.shape[1])
    changed = np.zeros(R, np.int64)
    for k in order:
        for r in rounds:
            present = P[k, r] == 1
            sign = -1 if present else 1
            m = 0
            for j in range(R):
                if j != r and P[k, j] == 1:
                    ones[m] = j
                    v[m] = sign * energy[k] * kernel[r, j]
                    m += 1
            ones[m], v[m] = r, sign * 0.5 * energy[k]
            m += 1
            b, ab, c, bb = 0.0, 0.0, 0.0, 0.0
            for x in range(m):
                i = ones[x]
                b += v[x] * W[r, i]
                ab += v[x] * H[r, i]
                w, h = 0.0, 0.0
                for z in range(x):
                    w += v[z] * W[i, ones[z]]
                    h += v[z] * H[i, ones[z]]
                c += v[x] * (2 * w + v[x] * W[i, i])
                bb += v[x] * (2 * h + v[x] * H[i, i])
            gain = log_likelihood(coordinates, W[r, r], b, c, H[r, r], ab, bb)
            # The log-odds of a 1 without the aggregates; `others` are the ones elsewhere in the window.
            q = window[k, r]
            others = tally[k, q] - P[k, r]
            prior = odds[k, r] + cohort_precision * (missing[r] + P[k, r] - 0.5)
            prior += weight[k, q, others + 1] - weight[k, q, others]
            gain += sign * prior
            if uniform[k, r] * (1 + np.exp(-gain)) >= 1:
                continue
            changed[r] += 1
            f[:], g[:] = 0.0, 0.0
            f[r] = 1.0
            for x in range(m):
                g[ones[x]] = v[x]
            add(W, H, f, g)
            P[k, r] = 0 if present else 1
            tally[k, q] += sign
            missing[r] -= sign
    return changed


@_compiled
def swap_tails(
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
    """Visit `pairs` (q, 2) of clients, and draw the round from which they exchange columns, or none.

    κ(r, s) = exp(−|position r − position s|). `uniform` (q, 2) are random numbers. P, W and H stay up to
    date. Returns the number of exchanges. Exchanges are drawn as if both clients had the mean of their
    energies; if the energies differ, what is drawn is accepted by its true likelihood.
    """
    R = P.shape[1]
    at, sign, f, g = np.empty(R, np.int64), np.empty(R, np.int64), np.empty(R), np.empty(R)
    before, after, score, by_counts = np.empty(R), np.empty(R), np.empty(R), np.empty(R)
    heads, tails = np.empty((2, R)), np.empty((2, R))
    tally = tallies(P, window, weight.shape[1])
    exchanges = 0
    for q in range(len(pairs)):
        one, two = pairs[q, 0], pairs[q, 1]
        energy = 0.5 * (energies[one] + energies[two])
        m = 0
        for r in range(R):
            if P[one, r] != P[two, r]:
                at[m], sign[m] = r, 1 if P[one, r] == 1 else -1
                before[m] = energy * sign[m] * np.exp(position[r])
                after[m] = -sign[m] * np.exp(-position[r])
                m += 1
        if m < 2:
            continue
        # The products of every place with those before it, with those behind it, and of all with each other.
        a, b, c, aa, ab, bb = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(m):
            r = at[j]
            head_w, head_h, tail_w, tail_h = 0.0, 0.0, 0.0, 0.0
            for x in range(j):
                head_w += before[x] * W[r, at[x]]
                head_h += before[x] * H[r, at[x]]
            for x in range(j + 1, m):
                tail_w += after[x] * W[r, at[x]]
                tail_h += after[x] * H[r, at[x]]
            heads[0, j], heads[1, j], tails[0, j], tails[1, j] = head_w, head_h, tail_w, tail_h
            c += after[j] * (2 * tail_w + after[j] * W[r, r])
            bb += after[j] * (2 * tail_h + after[j] * H[r, r])
        # Cut j leaves the places up to j and exchanges those after it. From one cut to the next, place j
        # moves from the tail to the head, and all six products change by one row.
        for j in range(m - 1):
            r = at[j]
            a += before[j] * (2 * heads[0, j] + before[j] * W[r, r])
            aa += before[j] * (2 * heads[1, j] + before[j] * H[r, r])
            c -= after[j] * (2 * tails[0, j] + after[j] * W[r, r])
            bb -= after[j] * (2 * tails[1, j] + after[j] * H[r, r])
            b += before[j] * tails[0, j] - after[j] * heads[0, j]
            ab += before[j] * tails[1, j] - after[j] * heads[1, j]
            score[j] = log_likelihood(coordinates, a, b, c, aa, ab, bb)
        # The counts, from the last place to the first: the tallies take part in the exchange for a while.
        counted = 0.0
        for j in range(m - 1, 0, -1):
            r = at[j]
            u, w = window[one, r], window[two, r]
            counted -= weight[one, u, tally[one, u]] + weight[two, w, tally[two, w]]
            tally[one, u] -= sign[j]
            tally[two, w] += sign[j]
            counted += weight[one, u, tally[one, u]] + weight[two, w, tally[two, w]]
            counted += sign[j] * (odds[two, r] - odds[one, r])
            score[j - 1] += counted
            by_counts[j - 1] = counted
        best = 0.0
        for j in range(m - 1):
            best = max(best, score[j])
        total = np.exp(-best)
        for j in range(m - 1):
            score[j] = np.exp(score[j] - best)
            total += score[j]
        draw, chosen = uniform[q, 0] * total, m - 1
        for j in range(m - 1):
            draw -= score[j]
            if draw < 0:
                chosen = j
                break
        own, rounds = (energies[one], energies[two]), at[chosen + 1 : m]
        if chosen < m - 1 and own[0] != own[1]:
            gain = exchange_gain(P[one], P[two], W, H, position, own, rounds, coordinates)
            if np.log(uniform[q, 1] * score[chosen]) + best >= by_counts[chosen] + gain:
                chosen = m - 1
        for j in range(1, chosen + 1):
            tally[one, window[one, at[j]]] += sign[j]
            tally[two, window[two, at[j]]] -= sign[j]
        if chosen == m - 1:
            continue
        exchanges += 1
        if own[0] != own[1]:
            exchange(P[one], P[two], W, H, position, own, rounds, coordinates)
            continue
        f[:], g[:] = 0.0, 0.0
        # Both factors are taken relative to the cut, so that they stay near 1.
        cut = np.exp(position[at[chosen]])
        for x in range(m):
            if x <= chosen:
                f[at[x]] = before[x] / cut
            else:
                g[at[x]] = after[x] * cut
        add(W, H, f, g)
        for x in range(chosen + 1, m):
            r = at[x]
            P[one, r], P[two, r] = P[two, r], P[one, r]
    return exchanges

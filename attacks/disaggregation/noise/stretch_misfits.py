"""How much better or worse the sums fit if two clients exchange a stretch of their columns.

Under the Gaussian process of `round_model`, let two clients exchange their entries in a round s, then in the
next one in which they differ, and so on. With δ_s the change of the first client's entry, each step adds
e vᵀ + v eᵀ to Ω, where e is the unit vector of the round and

    v = δ_s κ(s, ·) ∘ (E₁ p₁ − E₂ p₂ + (E₁ + E₂) δ),

with the energies E₁ and E₂, the columns p₁ and p₂ at the start, and δ the changes so far (half of it at s).
So the change of Ω is U M Uᵀ with U = (e, v, e, v, …) and M exchanging neighbours, and the misfit changes by
log |det(M + UᵀWU)| − tr((M + UᵀWU)⁻¹ UᵀHU), with W = Ω⁻¹ and H = Ω⁻¹KΩ⁻¹. Gaussian elimination with pivots
of 2 × 2 passes all stretches from one start on its way, and each step adds its own term.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise import stretches as stretches_module
from attacks.disaggregation.noise.stretches import stretches
from fedsim.core.compilation import compiled

# Sums may be reordered; but infinite odds are impossible counts.
_compiled = compiled(
    stretches_module, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy", nogil=True
)


@_compiled
def best_stretches(
    P: NDArray[np.uint8],
    sums: NDArray[np.float64],
    reach: NDArray[np.float64],
    kernel: NDArray[np.float64],
    energies: NDArray[np.float64],
    window: NDArray[np.int64],
    tally: NDArray[np.int64],
    weight: NDArray[np.float64],
    coordinates: float,
    pairs: NDArray[np.int64],
) -> Any:
    """Of each of the `pairs` (q, 2): the best stretch (q, 2), its gain (q,), and the log-odds (q,) of all.

    `P` (n, R); `sums` (2, R, R) are W and H, and `reach` (n, 2, R, R) their products with κ(s, ·) ∘ p for
    each client and round s; `kernel` κ (R, R); `energies` (n,); `window`, `tally` and `weight` as in
    `stretches`. A gain is in log-posterior, where the likelihood counts this many `coordinates`. A stretch
    goes from one of the rounds in which the two differ to before another. Gain and log-odds are −∞ if the
    counts leave none.
    """
    R = P.shape[1]
    at, change, near = np.empty(R, np.int64), np.empty(R, np.int64), np.empty(R, np.int64)
    best, gain, total = np.zeros((len(pairs), 2), np.int64), np.empty(len(pairs)), np.empty(len(pairs))
    for q in range(len(pairs)):
        one, two = pairs[q, 0], pairs[q, 1]
        m, nearby = 0, 0
        for r in range(R):
            if P[one, r] or P[two, r]:
                near[nearby] = r
                nearby += 1
            if P[one, r] != P[two, r]:
                at[m], change[m] = r, -1 if P[one, r] else 1
                m += 1
        found, odds = stretches(one, two, at[:m], change[:m], window, tally, weight)
        first = 0
        while first < len(found):
            # Stretches that overlap share their products.
            start, end, last = found[first, 0], found[first, 1], first + 1
            while last < len(found) and found[last, 0] < end:
                end = max(end, found[last, 1])
                last += 1
            rounds, signs = at[start:end], change[start:end]
            U = _products(P, sums, reach, kernel, energies, one, two, rounds, signs, near[:nearby])
            steps = _steps(kernel, energies[one] + energies[two], rounds, signs)
            _subtract_misfits(odds[first:last], found[first:last], U, steps, 0.5 * coordinates, m)
            first = last
        gain[q], total[q] = -np.inf, -np.inf
        for x in range(len(found)):
            if odds[x] > gain[q]:
                gain[q], best[q, 0], best[q, 1] = odds[x], found[x, 0], found[x, 1]
        if len(found):
            chances = 0.0
            for x in range(len(found)):
                chances += np.exp(odds[x] - gain[q])
            total[q] = gain[q] + np.log(chances)
    return best, gain, total


@_compiled
def _products(
    P: Any,
    sums: Any,
    reach: Any,
    kernel: Any,
    energies: Any,
    one: int,
    two: int,
    at: Any,
    change: Any,
    near: Any,
) -> Any:
    """UᵀWU and UᵀHU (2, 2n, 2n) of the n rounds `at`, with no changes so far; `near` are either's rounds."""
    n, E1, E2 = len(at), energies[one], energies[two]
    products, v, Zv = np.empty((2, 2 * n, 2 * n)), np.empty((n, len(near))), np.empty(len(near))
    for s in range(n):
        for t in range(len(near)):
            r = near[t]
            v[s, t] = change[s] * kernel[at[s], r] * (E1 * P[one, r] - E2 * P[two, r])
    for z in range(2):
        for s in range(n):
            for t in range(len(near)):
                Zv[t] = change[s] * (E1 * reach[one, z, at[s], near[t]] - E2 * reach[two, z, at[s], near[t]])
            for u in range(n):
                ev = change[s] * (E1 * reach[one, z, at[s], at[u]] - E2 * reach[two, z, at[s], at[u]])
                vv = 0.0
                for t in range(len(near)):
                    vv += v[u, t] * Zv[t]
                products[z, 2 * u, 2 * s] = sums[z, at[u], at[s]]
                products[z, 2 * u, 2 * s + 1] = products[z, 2 * s + 1, 2 * u] = ev
                products[z, 2 * u + 1, 2 * s + 1] = vv
    return products


@_compiled
def _steps(kernel: Any, energy: float, at: Any, change: Any) -> Any:
    """(n, n) how much of the e of a round is in the v of a later one; half of it in its own."""
    n = len(at)
    steps = np.empty((n, n))
    for i in range(n):
        for s in range(n):
            steps[i, s] = energy * change[i] * change[s] * kernel[at[i], at[s]]
        steps[i, i] *= 0.5
    return steps


@_compiled
def _subtract_misfits(odds: Any, found: Any, products: Any, steps: Any, factor: float, m: int) -> None:
    """Subtract from the `odds` (s,) of stretches `found` (s, 2) this factor times the change of the misfit.

    `products` (2, 2n, 2n) belong to rounds from the first start on, with no changes so far, and are
    overwritten. Stretches are in order. One of all m rounds exchanges two names, and the sums say nothing
    about names.
    """
    n, origin, last = len(steps), found[0, 0], len(found)
    a, f, z = np.empty((2 * n, 2 * n)), np.empty((2 * n, 2 * n)), np.empty((2, 2 * n))
    for i in range(n - 1, -1, -1):
        # From now on, the exchange of round i is among the changes so far of all later rounds.
        for y in range(2):
            for s in range(i, n):
                for k in range(2 * n):
                    products[y, 2 * s + 1, k] += steps[i, s] * products[y, 2 * i, k]
            for k in range(2 * n):
                for s in range(i, n):
                    products[y, k, 2 * s + 1] += steps[i, s] * products[y, k, 2 * i]
        first = last
        while first > 0 and found[first - 1, 0] == origin + i:
            first -= 1
        if first == last:
            continue
        size = 2 * (found[last - 1, 1] - origin - i)
        for r in range(size):
            for k in range(r, size):
                a[r, k], f[r, k] = products[0, 2 * i + r, 2 * i + k], products[1, 2 * i + r, 2 * i + k]
        misfit, x = 0.0, first
        for s in range(0, size, 2):
            misfit += _eliminate(a, f, s, size, z)
            if found[x, 1] == origin + i + s // 2 + 1:
                if found[x, 1] - found[x, 0] < m:
                    odds[x] -= factor * misfit
                x += 1
        last = first


@_compiled
def _eliminate(a: Any, f: Any, s: int, m: int, z: Any) -> float:
    """The term of the step at s (even), which is then eliminated from the first m rows of `a` and `f`.

    Both are symmetric, and only their upper triangles are used. `z` (2, m) is overwritten.
    """
    a00, a01, a11 = a[s, s], 1 + a[s, s + 1], a[s + 1, s + 1]
    f00, f01, f11 = f[s, s], f[s, s + 1], f[s + 1, s + 1]
    determinant = a00 * a11 - a01 * a01
    # It is negative as long as Ω stays positive definite.
    if determinant >= 0:
        return np.inf
    b00, b01, b11 = a11 / determinant, -a01 / determinant, a00 / determinant
    for k in range(s + 2, m):
        z[0, k] = b00 * a[s, k] + b01 * a[s + 1, k]
        z[1, k] = b01 * a[s, k] + b11 * a[s + 1, k]
    for r in range(s + 2, m):
        z0, z1 = z[0, r], z[1, r]
        t0, t1 = f[s, r] - f00 * z0 - f01 * z1, f[s + 1, r] - f01 * z0 - f11 * z1
        for k in range(r, m):
            a[r, k] -= z0 * a[s, k] + z1 * a[s + 1, k]
            f[r, k] -= z0 * f[s, k] + z1 * f[s + 1, k] + t0 * z[0, k] + t1 * z[1, k]
    return float(np.log(-determinant) - (b00 * f00 + 2 * b01 * f01 + b11 * f11))


def compile_stretch_misfits() -> None:
    """Compile the loops, or load them from the disk, before anybody needs them."""
    nobody, no_counts = np.zeros((1, 1), dtype=np.int64), (np.zeros((1, 1), dtype=np.int64),) * 2
    model = np.zeros((2, 1, 1)), np.zeros((1, 2, 1, 1)), np.zeros((1, 1)), np.zeros(1)
    best_stretches(
        nobody.astype(np.uint8), *model, *no_counts, np.zeros((1, 1, 1)), 1.0, np.zeros((0, 2), np.int64)
    )

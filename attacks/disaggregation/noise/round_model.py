"""The sums as samples of a Gaussian process over rounds, and its leave-one-out predictions.

Every entry of A is, over the rounds, a sample of one process with covariance

    Ω = κ ∘ (X S Xᵀ) + F Fᵀ + N,

where X (rounds × clients + 1) holds the expected participation of each client and, last, the cohort sizes:
the clients' common mean is a client that takes part once per participant. S are the energies of the
updates, N is noise, and κ says how far an update of one round resembles the same client's in another: 1
everywhere if the model is held fixed; exp(−distance) if it moves, with a speed that may itself change.
F are courses over the rounds that the sums have in common whoever took part. To cut them out of the sums
instead would spread each round's noise over all others, where it looks like common members.

All that is needed of A is its Gram matrix K. Who took part in round r is judged with updates that were
estimated from the *other* rounds: an estimate that contains a round's own noise agrees with that round
whoever took part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

STILL = 0.02
"""Total drift over all rounds below which the model counts as fixed."""
FIRST_DRIFT = 0.3
"""Total drift that is tried first."""
STEPS = {"client": 0.2, "mean": 0.4, "drift": 0.3, "bend": 0.5}
"""Steps of the search, in natural logarithms (and absolute for the bend)."""
NOISE_STEP = 0.2


@dataclass(frozen=True)
class Scales:
    """Energy of one `client`'s update and of the common `mean`; `drift`: lengths that updates move in all.

    `bend` is the logarithm of the speed of drift at the end over that at the start.
    """

    client: float
    mean: float
    drift: float = 0.0
    bend: float = 0.0

    def kernel(self, rounds: int) -> NDArray[np.float64] | None:
        """κ (rounds, rounds), or None where it is 1 everywhere."""
        if self.drift == 0:
            return None
        time = (np.arange(rounds) + 0.5) / rounds - 0.5
        place = np.cumsum(self.drift / rounds * np.exp(self.bend * time))
        return np.asarray(np.exp(-np.abs(place[:, None] - place)))

    def neighbours(self, name: str) -> list[Scales]:
        """The scales with one of them a step up and a step down, as far as that makes sense."""
        value, step = getattr(self, name), STEPS[name]
        if name == "bend":
            return [replace(self, bend=value + step), replace(self, bend=value - step)] if self.drift else []
        if name == "drift" and value == 0:
            return [replace(self, drift=FIRST_DRIFT)]
        moved = [
            replace(self, **{name: value * np.exp(step)}),
            replace(self, **{name: value * np.exp(-step)}),
        ]
        return [replace(s, drift=0.0, bend=0.0) if 0 < s.drift < STILL else s for s in moved]


@dataclass(frozen=True, eq=False)
class RoundModel:
    """The process given what is believed about P.

    `gram` K (R, R); `design` X (R, n+1), the last column being cohort sizes; `doubt` (R, n) the variances
    of the participations around X; `scales`; `loudness` (n,) each client's energy relative to the scale's;
    `noise` (R,), the diagonal of N without the part from doubt; `shared` F (R, q).
    """

    gram: NDArray[np.float64]
    design: NDArray[np.float64]
    doubt: NDArray[np.float64]
    scales: Scales
    loudness: NDArray[np.float64]
    noise: NDArray[np.float64]
    shared: NDArray[np.float64]

    @property
    def energies(self) -> NDArray[np.float64]:
        """(n+1,) the diagonal of S."""
        return np.append(self.scales.client * self.loudness, self.scales.mean)

    def covariance(self) -> NDArray[np.float64]:
        """Ω: participation that is in doubt adds noise of its own."""
        X = self.design * np.sqrt(self.energies)
        omega = np.asarray(X @ X.T)
        kernel = self.scales.kernel(len(X))
        if kernel is not None:
            omega *= kernel
        omega += self.shared @ self.shared.T
        omega[np.diag_indices_from(omega)] += self.noise + self.doubt @ self.energies[:-1]
        return omega

    @cached_property
    def _half_inverse(self) -> tuple[NDArray[np.float64], float]:
        """The upper half of Ω⁻¹ (R, R) over zeros, and the logarithm of Ω's determinant."""
        # The covariance is symmetric; its transpose is in the order of LAPACK, and nothing is copied.
        factor, not_positive = dpotrf(self.covariance().T, lower=1, overwrite_a=1)
        if not_positive:
            raise np.linalg.LinAlgError("the covariance of the sums is not positive definite")
        log_determinant = 2 * float(np.log(np.diag(factor)).sum())
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
        return inverse.T, log_determinant

    def inverse(self) -> NDArray[np.float64]:
        """Ω⁻¹ (R, R); after `misfit` there is hardly anything left to do."""
        half, _ = self._half_inverse
        return np.asarray(half + np.triu(half, 1).T)

    def misfit(self) -> float:
        """Minus twice the log-likelihood per entry of an update, up to a constant."""
        half, log_determinant = self._half_inverse
        fit = 2 * np.vdot(half, self.gram) - np.diag(half) @ np.diag(self.gram)
        return log_determinant + float(fit)

    def fitted(self) -> RoundModel:
        """The model after one round of coordinate search for more likely scales and noise."""
        best, least = self, self.misfit()
        for name in STEPS:
            for scales in best.scales.neighbours(name):
                # The first step from a fixed to a moving model must take back what was noise till then.
                starts = name == "drift" and best.scales.drift == 0
                trial = replace(best, scales=scales, noise=best.noise * (0.8 if starts else 1.0))
                if (misfit := trial.misfit()) < least:
                    best, least = trial, misfit
                    break
        for step in (NOISE_STEP, -NOISE_STEP):
            trial = replace(best, noise=best.noise * np.exp(step))
            if trial.misfit() < least:
                return trial
        return best


@dataclass(frozen=True, eq=False)
class Products:
    """⟨ĝ_j, ĝ_k⟩ of c updates for each of b rounds: `from_all` − left rightᵀ − right leftᵀ without the round.

    `from_all` (b, c, c), or (c, c) if the same for all: with the round. `left` and `right` (b, c).
    """

    from_all: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]

    def first(self, n: int) -> Products:
        """The products among the first `n` columns."""
        return Products(self.from_all[..., :n, :n], self.left[:, :n], self.right[:, :n])

    def of_all(self, r: int) -> NDArray[np.float64]:
        """(c, c) with the r-th round; the same object if it is the same for all."""
        return self.from_all if self.from_all.ndim == 2 else self.from_all[r]

    def diagonal(self) -> NDArray[np.float64]:
        """(b, c) the energy of each update."""
        return np.asarray(np.einsum("...kk->...k", self.from_all) - 2 * self.left * self.right)

    def times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(b, c) each round's products times its own `x` (b, c)."""
        along_left = np.einsum("rk,rk->r", self.left, x)[:, None]
        along_right = np.einsum("rk,rk->r", self.right, x)[:, None]
        return np.asarray(_dot(x, self.from_all) - self.left * along_right - self.right * along_left)


class LeaveOneOut:
    """Updates predicted for each round from all the others, as inner products with that round.

    `columns` (R, n+1+q): the design and the shared courses, whose updates are predicted alike. `variance`
    (R,): of an entry of round r given the other rounds. `residual` (R,): energy of the difference between
    round r and its prediction, in the same units.
    """

    def __init__(self, model: RoundModel) -> None:
        self.columns = np.concatenate((model.design, model.shared), axis=1)
        self.weighted = np.concatenate((model.design * model.energies, model.shared), axis=1)
        self.kernel, self.moving = model.scales.kernel(len(model.design)), model.design.shape[1]
        self.doubt = model.doubt
        self.inverse = model.inverse()
        self.filtered = self.inverse @ model.gram
        self.energy = self.filtered @ self.inverse
        self.variance = 1 / np.diag(self.inverse)
        self.residual = self.variance**2 * np.maximum(np.diag(self.energy), 0)

    def surplus(self) -> NDArray[np.float64]:
        """(n,) what the sums hold of each client's energy, over what the model expects them to hold.

        Multiplying energies by the square root of this never makes the sums less likely.
        """
        found, expected = self._along_columns(self.energy), self._along_columns(self.inverse)
        return np.asarray(found / np.maximum(expected, np.finfo(np.float64).tiny))

    def _along_columns(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n,) trace of the matrix with each client's part of the covariance, in units of its energy."""
        P = self.columns[:, : self.doubt.shape[1]]
        between = matrix if self.kernel is None else matrix * self.kernel
        return np.asarray(np.einsum("rk,rk->k", P, between @ P) + np.diag(matrix) @ self.doubt)

    @cached_property
    def between(self) -> NDArray[np.float64]:
        """(c, c) ⟨ĝ_j, ĝ_k⟩ from all rounds, if the model is fixed."""
        return np.asarray(self.weighted.T @ self.energy @ self.weighted)

    def products(self, rounds: slice) -> tuple[NDArray[np.float64], Products]:
        """For b rounds r and all c `columns`: ⟨ĝ_k, A_r⟩ (b, c), and ⟨ĝ_j, ĝ_k⟩, ĝ without round r.

        Removing a round from Ω is a rank-one change of its inverse.
        """
        own = np.arange(len(self.variance))[rounds]
        v = self.variance[own, None]
        energy_own = np.diag(self.energy)[own, None]
        o, e, f = (self._along(matrix[own], own) for matrix in (self.inverse, self.energy, self.filtered.T))
        with_round = f - v * np.diag(self.filtered)[own, None] * o
        from_all = self.between if self.kernel is None else self._between_drifting(own, self.kernel)
        return with_round, Products(from_all, left=v * o, right=e - 0.5 * v * energy_own * o)

    def _along(self, rows: NDArray[np.float64], own: NDArray[np.intp]) -> NDArray[np.float64]:
        """(b, c) `rows` (b, R) with what the updates of the rounds `own` (b,) are estimated from."""
        if self.kernel is None:
            return np.asarray(rows @ self.weighted)
        moving, fixed = self.weighted[:, : self.moving], self.weighted[:, self.moving :]
        return np.concatenate(((rows * self.kernel[own]) @ moving, rows @ fixed), axis=1)

    def _between_drifting(self, own: NDArray[np.intp], kernel: NDArray[np.float64]) -> NDArray[np.float64]:
        """(b, c, c) ⟨ĝ_j, ĝ_k⟩ from all rounds, for successive rounds `own`.

        κ is exponential: earlier rounds resemble one of these as they do the first, but for a factor; later
        ones, the last. So their part is a mixture of the same matrices for all, and only the part of the few
        rounds `own` is different for each.
        """
        W, F, E = self.weighted[:, : self.moving], self.weighted[:, self.moving :], self.energy
        first, last, m = own[0], own[-1], self.moving
        past, future = kernel[first, :first, None] * W[:first], kernel[last, last + 1 :, None] * W[last + 1 :]
        with_past, with_future = E[:, :first] @ past, E[:, last + 1 :] @ future
        in_past, in_future = past.T @ with_past[:first], future.T @ with_future[last + 1 :]
        across = past.T @ with_future[:first]
        across += across.T.copy()
        products = np.empty((len(own), len(self.weighted.T), len(self.weighted.T)))
        for i, r in enumerate(own):
            a, z = kernel[r, first], kernel[r, last]
            near = kernel[r, own, None] * W[own]
            half = near.T @ (a * with_past[own] + z * with_future[own] + 0.5 * E[own][:, own] @ near)
            products[i, :m, :m] = a**2 * in_past + z**2 * in_future + a * z * across + half + half.T
        shared = E @ F
        for k, course in enumerate(shared.T, start=m):
            products[:, :m, k] = products[:, k, :m] = (kernel[own] * course) @ W
        products[:, m:, m:] = F.T @ shared
        return products


def _dot(rows: NDArray[np.float64], C: NDArray[np.float64]) -> NDArray[np.float64]:
    """(b, n) each row with its own C (b, R, n), or with the one C (R, n)."""
    return np.asarray(rows @ C if C.ndim == 2 else np.matmul(rows[:, None, :], C)[:, 0])

"""The aggregates as samples of a Gaussian process over rounds, and its maximum-likelihood fit.

Every coordinate of A is, over the rounds, a sample of one process with covariance

    Ω = κ ∘ (X S Xᵀ) + F Fᵀ + N.

- X (rounds × clients + 1) holds the expected participation of each client and, in the last column, the
  cohort sizes: the clients' common mean acts like a client that takes part once per participant.
- S is diagonal, with the energies of the updates. N is diagonal, with the noise of the rounds.
- κ is the correlation between a client's updates in two rounds: 1 everywhere if the server's model is fixed,
  exp(−distance) if the model moves, with a speed that may change over time.
- F are profiles over the rounds that all aggregates share whoever takes part. They are part of the model;
  projecting them out of A would spread each round's noise over all other rounds, where it looks like common
  participants.

The likelihood needs only the Gram matrix K of A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

LEAST_DRIFT = 0.02
"""Total drift over all rounds below which the server's model counts as fixed."""
FIRST_DRIFT = 0.3
"""Total drift that the search tries first."""
DRIFT_NOISE = 0.8
"""Factor of the noise when the search first tries a drift: part of the noise was drift until then."""
SCALE_STEPS = {"client": 0.2, "mean": 0.4, "drift": 0.3, "bend": 0.5}
"""Steps of the coordinate search, in natural logarithms (absolute for the bend)."""
LARGEST_REFINEMENT = 1.0
"""Most that a refinement changes a scale, in natural logarithms (absolute for the bend)."""
NOISE_STEP = 0.2
"""Step of the search for the noise, in natural logarithms."""


@dataclass(frozen=True)
class Scales:
    """Energy of one `client`'s update and of the common `mean`, and how fast updates change.

    `drift` is the distance that updates move over all rounds, in correlation lengths. `bend` is the logarithm
    of the ratio of the speeds at the end and at the start.
    """

    client: float
    mean: float
    drift: float = 0.0
    bend: float = 0.0

    def kernel(self, rounds: int) -> NDArray[np.float64] | None:
        """κ (rounds, rounds), or None if it is 1 everywhere."""
        if self.drift == 0:
            return None
        position = self.position(rounds)
        return np.asarray(np.exp(-np.abs(position[:, None] - position)))

    def position(self, rounds: int) -> NDArray[np.float64]:
        """(rounds,) how far updates have moved by each round, in correlation lengths."""
        time = (np.arange(rounds) + 0.5) / rounds - 0.5
        return np.asarray(np.cumsum(self.drift / rounds * np.exp(self.bend * time)))

    def neighbours(self, name: str) -> list[Scales]:
        """The scales with one of them a step up and a step down, where that is possible."""
        value, step = getattr(self, name), SCALE_STEPS[name]
        if name == "bend":
            return [replace(self, bend=value + step), replace(self, bend=value - step)] if self.drift else []
        if name == "drift" and value == 0:
            return [replace(self, drift=FIRST_DRIFT)]
        moved = [
            replace(self, **{name: value * np.exp(step)}),
            replace(self, **{name: value * np.exp(-step)}),
        ]
        return [replace(s, drift=0.0, bend=0.0) if 0 < s.drift < LEAST_DRIFT else s for s in moved]


@dataclass(frozen=True, eq=False)
class RoundModel:
    """The process given the current beliefs about P.

    `gram` K (R, R); `design` X (R, n+1), with the cohort sizes last; `variance` (R, n) of the participation
    around X; `scales`; `relative_energy` (n,) each client's energy relative to `scales.client`; `noise` (R,)
    the diagonal of N without the part that uncertain participation adds; `shared` F (R, q).
    """

    gram: NDArray[np.float64]
    design: NDArray[np.float64]
    variance: NDArray[np.float64]
    scales: Scales
    relative_energy: NDArray[np.float64]
    noise: NDArray[np.float64]
    shared: NDArray[np.float64]

    @property
    def energies(self) -> NDArray[np.float64]:
        """(n+1,) the diagonal of S."""
        return np.append(self.scales.client * self.relative_energy, self.scales.mean)

    def given(
        self, participation: NDArray[np.float64], cohort_sizes: NDArray[np.float64] | None
    ) -> RoundModel:
        """The model with the same scales and noise for a known `participation` (R, n)."""
        sizes = participation.sum(axis=1) if cohort_sizes is None else cohort_sizes
        design = np.concatenate((participation, sizes[:, None]), axis=1)
        return replace(self, design=design, variance=np.zeros_like(participation))

    def covariance(self) -> NDArray[np.float64]:
        """Ω; uncertain participation adds to the diagonal."""
        X = self.design * np.sqrt(self.energies)
        omega = np.asarray(X @ X.T)
        kernel = self.scales.kernel(len(X))
        if kernel is not None:
            omega *= kernel
        omega += self.shared @ self.shared.T
        omega[np.diag_indices_from(omega)] += self.noise + self.variance @ self.energies[:-1]
        return omega

    @cached_property
    def _half_inverse(self) -> tuple[NDArray[np.float64], float]:
        """The upper triangle of Ω⁻¹ (R, R), zeros below it, and the logarithm of Ω's determinant."""
        # Ω is symmetric, and its transpose has the memory order of LAPACK: no copy is made.
        factor, not_positive = dpotrf(self.covariance().T, lower=1, overwrite_a=1)
        if not_positive:
            raise np.linalg.LinAlgError("the covariance of the aggregates is not positive definite")
        log_determinant = 2 * float(np.log(np.diag(factor)).sum())
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
        return inverse.T, log_determinant

    def inverse(self) -> NDArray[np.float64]:
        """Ω⁻¹ (R, R), from the factorisation that `misfit` uses."""
        half, _ = self._half_inverse
        return np.asarray(half + np.triu(half, 1).T)

    def misfit(self) -> float:
        """Minus twice the log-likelihood per coordinate of an update, up to a constant."""
        half, log_determinant = self._half_inverse
        fit = 2 * np.vdot(half, self.gram) - np.diag(half) @ np.diag(self.gram)
        return log_determinant + float(fit)

    def independent_coordinates(self) -> float:
        """The number of independent coordinates of an update, from the scatter that the model leaves.

        With D coordinates, the entries off the diagonal of the whitened Gram matrix have the variance 1/D.
        """
        factor = np.linalg.cholesky(self.covariance())
        white = np.linalg.solve(factor, np.linalg.solve(factor, self.gram).T)
        variance = np.var(white[np.triu_indices_from(white, 1)]) if len(white) > 1 else 1.0
        return float(1 / max(variance, np.finfo(np.float64).tiny))

    def fitted(self) -> RoundModel:
        """The model after one pass of coordinate search for more likely scales and noise."""
        best, least = self, self.misfit()
        for name in SCALE_STEPS:
            for scales in best.scales.neighbours(name):
                first = name == "drift" and best.scales.drift == 0
                trial = replace(best, scales=scales, noise=best.noise * (DRIFT_NOISE if first else 1.0))
                if (misfit := trial.misfit()) < least:
                    best, least = trial, misfit
                    break
        for step in (NOISE_STEP, -NOISE_STEP):
            trial = replace(best, noise=best.noise * np.exp(step))
            if trial.misfit() < least:
                return trial
        return best

    def refined(self, *, steps: int) -> RoundModel:
        """The model after `steps` of a quasi-Newton search for the likeliest scales and noise, all together.

        `fitted` changes one scale at a time by a fixed step. It stops short where one can only rise while
        another falls.
        """
        from scipy.optimize import minimize

        scales, noise = self.scales, self.noise
        moving = scales.drift > 0

        def model(x: NDArray[np.float64]) -> RoundModel:
            client, mean, louder, drift = np.exp(x[:4])
            drift, bend = (scales.drift * drift, scales.bend + x[4]) if moving else (0.0, 0.0)
            return replace(
                self,
                scales=Scales(scales.client * client, scales.mean * mean, float(drift), float(bend)),
                noise=noise * louder,
            )

        def misfit_and_gradient(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            trial = model(x)
            gradient = trial._gradient()
            return trial.misfit(), gradient if moving else gradient * (1, 1, 1, 0, 0)

        bounds = [(-LARGEST_REFINEMENT, LARGEST_REFINEMENT)] * 5
        found = minimize(
            misfit_and_gradient,
            np.zeros(5),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": steps},
        )
        return model(found.x)

    def _gradient(self) -> NDArray[np.float64]:
        """(5,) derivatives of the misfit by the logarithms of client, mean, noise, drift, and by the bend."""
        rounds = len(self.gram)
        W = self.inverse()
        G = W - W @ self.gram @ W
        position = self.scales.position(rounds)
        time = (np.arange(rounds) + 0.5) / rounds - 0.5
        shift = np.cumsum(np.diff(position, prepend=0.0) * time)
        distance = position[:, None] - position
        # κ is exp(−|distance|): its derivative by a parameter is −κ times the growth of the distance.
        kernel = np.exp(-np.abs(distance))
        X = self.design * np.sqrt(self.energies)
        signal = kernel * (X @ X.T)
        mean = kernel * np.outer(X[:, -1], X[:, -1])
        by_bend = np.sign(distance) * (shift[:, None] - shift)
        return np.array(
            [
                np.vdot(G, signal - mean) + np.diag(G) @ (self.variance @ self.energies[:-1]),
                np.vdot(G, mean),
                np.diag(G) @ self.noise,
                -np.vdot(G, signal * np.abs(distance)),
                -np.vdot(G, signal * by_bend),
            ]
        )

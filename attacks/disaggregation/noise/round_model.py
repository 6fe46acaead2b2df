"""The aggregates as samples of a Gaussian process over rounds, and its maximum-likelihood fit.

Every coordinate of A is, over the rounds, a sample of one process with covariance

    Ω = κ ∘ (X S Xᵀ) + F Fᵀ + N.

- X (rounds × clients + 1 + q) holds the expected participation of each client. Behind it are the cohort
  sizes: the clients' common mean acts like a client that takes part once per participant. The last q columns
  say how much of each trait of the data a round holds (`space.traits`): what clients with alike data have in
  common acts like q more clients.
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
SCALE_STEPS = {"client": 0.2, "mean": 0.4, "traits": 0.4, "drift": 0.3, "course": 0.5}
"""Steps of the coordinate search, in natural logarithms; those of the course tilt it."""
LARGEST_REFINEMENT = 1.0
"""Most that a refinement changes a scale, in natural logarithms."""
ROUNDS_PER_KNOT, MOST_KNOTS = 10, 24
"""Rounds between two knots of a refined course, and the most knots that it has."""
ROUGHNESS = 2e-3
"""What a squared difference of neighbouring knots, of logarithms of speeds or levels, adds to the misfit."""
NOISE_STEP = 0.2
"""Step of the search for the noise, in natural logarithms."""


@dataclass(frozen=True)
class Scales:
    """Energy of one `client`'s update, of the common `mean` and of the `traits`; how fast updates change.

    `drift` is the distance that updates move over all rounds at an even speed, in correlation lengths.
    `course` (two or more) are the logarithms of the speed relative to that, at knots evenly spaced over the
    rounds. Updates often rest at first, turn quickly when the model begins to learn, and slow down later.
    """

    client: float
    mean: float
    drift: float = 0.0
    course: tuple[float, ...] = (0.0, 0.0)
    traits: float = 0.0

    def kernel(self, rounds: int) -> NDArray[np.float64] | None:
        """κ (rounds, rounds), or None if it is 1 everywhere."""
        if self.drift == 0:
            return None
        position = self.position(rounds)
        return np.asarray(np.exp(-np.abs(position[:, None] - position)))

    def position(self, rounds: int) -> NDArray[np.float64]:
        """(rounds,) how far updates have moved by each round, in correlation lengths."""
        speed = np.exp(_between_knots(rounds, len(self.course)) @ self.course)
        return np.asarray(np.cumsum(self.drift / rounds * speed))

    def with_knots(self, rounds: int) -> Scales:
        """The same speeds, with as many knots as so many rounds deserve, and the whole distance as drift."""
        if self.drift == 0:
            return self
        knots = int(np.clip(1 + rounds // ROUNDS_PER_KNOT, 2, MOST_KNOTS))
        course = np.interp(np.linspace(0, 1, knots), np.linspace(0, 1, len(self.course)), self.course)
        distance = float(self.position(rounds)[-1])
        return replace(self, drift=distance, course=tuple((course - np.log(distance / self.drift)).tolist()))

    def neighbours(self, name: str) -> list[Scales]:
        """The scales with one of them a step up and a step down, where that is possible."""
        value, step = getattr(self, name), SCALE_STEPS[name]
        if name == "course":
            tilt = np.linspace(-step / 2, step / 2, len(value))
            both = (value + tilt, value - tilt)
            return [replace(self, course=tuple(course.tolist())) for course in both] if self.drift else []
        if name == "drift" and value == 0:
            return [replace(self, drift=FIRST_DRIFT)]
        if name == "traits" and value == 0:
            return []
        moved = [
            replace(self, **{name: value * np.exp(step)}),
            replace(self, **{name: value * np.exp(-step)}),
        ]
        return [replace(s, drift=0.0, course=(0.0, 0.0)) if 0 < s.drift < LEAST_DRIFT else s for s in moved]


@dataclass(frozen=True, eq=False)
class RoundModel:
    """The process given the current beliefs about P.

    `gram` K (R, R); `design` X (R, n+1+q), participation, cohort sizes and traits; `variance` (R, n) of the
    participation around X; `scales`; `relative_energy` (n,) each client's energy relative to `scales.client`;
    `noise` (R,) the diagonal of N without the part that uncertain participation adds; `shared` F (R, q). The
    rounds have been divided by their `level` (R,), so that updates are equally loud in all of them.
    """

    gram: NDArray[np.float64]
    design: NDArray[np.float64]
    variance: NDArray[np.float64]
    scales: Scales
    relative_energy: NDArray[np.float64]
    noise: NDArray[np.float64]
    shared: NDArray[np.float64]
    level: NDArray[np.float64]

    @property
    def clients(self) -> int:
        """The number n of clients."""
        return int(self.variance.shape[1])

    @property
    def participation(self) -> NDArray[np.float64]:
        """(R, n) the clients' part of X."""
        return self.design[:, : self.clients]

    @property
    def energies(self) -> NDArray[np.float64]:
        """(n+1+q,) the diagonal of S."""
        traits = self.design.shape[1] - self.clients - 1
        own = self.scales.client * self.relative_energy
        return np.concatenate((own, [self.scales.mean], np.full(traits, self.scales.traits)))

    def given(
        self, participation: NDArray[np.float64], cohort_sizes: NDArray[np.float64] | None
    ) -> RoundModel:
        """The model with the same scales and noise for a known `participation` (R, n)."""
        sizes = participation.sum(axis=1) if cohort_sizes is None else cohort_sizes
        traits = self.design[:, self.clients + 1 :]
        design = np.concatenate((participation, sizes[:, None], traits), axis=1)
        return replace(self, design=design, variance=np.zeros_like(participation))

    def covariance(self) -> NDArray[np.float64]:
        """Ω; uncertain participation adds to the diagonal."""
        X = self.design * np.sqrt(self.energies)
        omega = np.asarray(X @ X.T)
        kernel = self.scales.kernel(len(X))
        if kernel is not None:
            omega *= kernel
        omega += self.shared @ self.shared.T
        omega[np.diag_indices_from(omega)] += self.noise + self.variance @ self.energies[: self.clients]
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
        return log_determinant + float(fit) + 2 * float(np.log(self.level).sum())

    def levelled(self, level: NDArray[np.float64]) -> RoundModel:
        """The same aggregates, with every round divided by a further `level` (R,)."""
        return replace(
            self,
            gram=self.gram / np.outer(level, level),
            noise=self.noise / level**2,
            shared=self.shared / level[:, None],
            level=self.level * level,
        )

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
        another falls. This search also follows the course of the speed in detail, and how loud updates are
        over the rounds.
        """
        from scipy.optimize import minimize

        rounds, scales = len(self.gram), self.scales.with_knots(len(self.gram))
        course, knots = np.asarray(scales.course), len(scales.course)
        between = _between_knots(rounds, knots)

        def split(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
            return np.exp(x[:4]), course + x[4 : 4 + knots], x[4 + knots :]

        def model(x: NDArray[np.float64]) -> RoundModel:
            (client, mean, traits, louder), speeds, levels = split(x)
            moved = Scales(
                client=scales.client * client,
                mean=scales.mean * mean,
                traits=scales.traits * traits,
                drift=scales.drift,
                course=tuple(speeds.tolist()),
            )
            changed = replace(self, scales=moved, noise=self.noise * louder)
            return changed.levelled(np.exp(between @ levels))

        def misfit_and_gradient(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            trial, (_, *curves) = model(x), split(x)
            misfit, gradient = trial.misfit(), trial._gradient()
            steps = np.diff(curves)
            gradient[4:] -= 2 * ROUGHNESS * np.diff(steps, prepend=0.0, append=0.0).ravel()
            return misfit + ROUGHNESS * float((steps**2).sum()), gradient

        start = np.zeros(4 + 2 * knots)
        found = minimize(
            misfit_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-LARGEST_REFINEMENT, LARGEST_REFINEMENT)] * len(start),
            options={"maxiter": steps},
        )
        return model(found.x)

    def likelier(self, *, steps: int) -> RoundModel:
        """The model after one fit: in detail where updates drift."""
        return self.refined(steps=steps) if self.scales.drift else self.fitted()

    def _gradient(self) -> NDArray[np.float64]:
        """(4 + 2 knots,) derivatives of the misfit by the logarithms of client, mean, traits and noise, by
        the course, and by the logarithms of the levels at its knots."""
        rounds = len(self.gram)
        W = self.inverse()
        G = W - W @ self.gram @ W
        position = self.scales.position(rounds)
        # κ is exp(−|distance|): its derivative by a position is −κ times the sign of the distance.
        distance = position[:, None] - position
        kernel = np.exp(-np.abs(distance))
        X = self.design * np.sqrt(self.energies)
        signal = kernel * (X @ X.T)
        n = self.clients
        mean, traits = kernel * np.outer(X[:, n], X[:, n]), kernel * (X[:, n + 1 :] @ X[:, n + 1 :].T)
        by_position = -2 * (G * signal * np.sign(distance)).sum(axis=1)
        by_increment = np.cumsum(by_position[::-1])[::-1] * np.diff(position, prepend=0.0)
        doubt = np.diag(G) * (self.variance @ self.energies[:n])
        by_scale = [
            np.vdot(G, signal - mean - traits) + doubt.sum(),
            np.vdot(G, mean),
            np.vdot(G, traits),
            np.diag(G) @ self.noise,
        ]
        by_level = 2 * ((G * signal).sum(axis=1) + doubt)
        between = _between_knots(rounds, len(self.scales.course))
        return np.concatenate((by_scale, by_increment @ between, by_level @ between))


def _between_knots(rounds: int, knots: int) -> NDArray[np.float64]:
    """(rounds, knots) weights that interpolate values at evenly spaced knots in the middles of the rounds."""
    place = (np.arange(rounds) + 0.5) / rounds * (knots - 1)
    return np.asarray(np.maximum(0.0, 1 - np.abs(place[:, None] - np.arange(knots))))

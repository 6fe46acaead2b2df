"""Leave-one-out predictions of the Gaussian process over rounds.

Who took part in round r is judged with updates that were estimated from the *other* rounds. An estimate that
contains a round's own noise agrees with that round whoever took part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise.round_model import RoundModel


@dataclass(frozen=True, eq=False)
class Products:
    """Inner products ⟨ĝ_j, ĝ_k⟩ of c updates for each of b rounds: `from_all` − left rightᵀ − right leftᵀ.

    `from_all` (b, c, c), or (c, c) if it is the same for all rounds, includes the round itself. The two
    rank-one terms of `left` and `right` (b, c) take the round out.
    """

    from_all: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]

    def first(self, n: int) -> Products:
        """The products among the first `n` columns."""
        return Products(self.from_all[..., :n, :n], self.left[:, :n], self.right[:, :n])

    def including(self, rounds: slice) -> NDArray[np.float64]:
        """(b, c, c) the products with the rounds themselves included, or (c, c) if all rounds share them."""
        return self.from_all if self.from_all.ndim == 2 else self.from_all[rounds]

    def diagonal(self) -> NDArray[np.float64]:
        """(b, c) the energy of each update."""
        return np.asarray(np.einsum("...kk->...k", self.from_all) - 2 * self.left * self.right)

    def times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(b, c) the products of each round times its row of `x` (b, c)."""
        along_left = np.einsum("rk,rk->r", self.left, x)[:, None]
        along_right = np.einsum("rk,rk->r", self.right, x)[:, None]
        return np.asarray(_dot(x, self.from_all) - self.left * along_right - self.right * along_left)


class LeaveOneOut:
    """Predictions of the updates for each round from all other rounds, as inner products with that round.

    `columns` (R, n+1+q): the design and the shared profiles, whose updates are predicted in the same way.
    `variance` (R,): of a coordinate of round r given the other rounds. `residual` (R,): energy of the
    difference between round r and its prediction, in the same units.
    """

    def __init__(self, model: RoundModel) -> None:
        self.columns = np.concatenate((model.design, model.shared), axis=1)
        self.weighted = np.concatenate((model.design * model.energies, model.shared), axis=1)
        self.kernel, self.moving = model.scales.kernel(len(model.design)), model.design.shape[1]
        self.participation_variance = model.variance
        self.inverse = model.inverse()
        self.filtered = self.inverse @ model.gram
        self.energy = self.filtered @ self.inverse
        self.variance = 1 / np.diag(self.inverse)
        self.residual = self.variance**2 * np.maximum(np.diag(self.energy), 0)

    def energy_ratio(self) -> NDArray[np.float64]:
        """(n,) each client's energy in the aggregates over the energy that the model expects.

        Multiplying energies by the square root of this never lowers the likelihood.
        """
        observed, expected = self._along_columns(self.energy), self._along_columns(self.inverse)
        return np.asarray(observed / np.maximum(expected, np.finfo(np.float64).tiny))

    def _along_columns(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n,) trace of the matrix times each client's part of the covariance, per unit of its energy."""
        P = self.columns[:, : self.participation_variance.shape[1]]
        between = matrix if self.kernel is None else matrix * self.kernel
        return np.asarray(
            np.einsum("rk,rk->k", P, between @ P) + np.diag(matrix) @ self.participation_variance
        )

    @cached_property
    def between(self) -> NDArray[np.float64]:
        """(c, c) ⟨ĝ_j, ĝ_k⟩ from all rounds, for a fixed model."""
        return np.asarray(self.weighted.T @ self.energy @ self.weighted)

    def products(self, rounds: slice) -> tuple[NDArray[np.float64], Products]:
        """For b rounds r and all c `columns`: ⟨ĝ_k, A_r⟩ (b, c) and ⟨ĝ_j, ĝ_k⟩, with ĝ from all rounds but r.

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
        """(b, c) `rows` (b, R) times the weights that estimate the updates of the rounds `own` (b,)."""
        if self.kernel is None:
            return np.asarray(rows @ self.weighted)
        moving, fixed = self.weighted[:, : self.moving], self.weighted[:, self.moving :]
        return np.concatenate(((rows * self.kernel[own]) @ moving, rows @ fixed), axis=1)

    def _between_drifting(self, own: NDArray[np.intp], kernel: NDArray[np.float64]) -> NDArray[np.float64]:
        """(b, c, c) ⟨ĝ_j, ĝ_k⟩ from all rounds, for successive rounds `own`.

        κ is exponential. The correlation of an earlier round with one of these rounds is its correlation with
        the first of them times a factor; the same holds for later rounds and the last one. So the parts of
        earlier and later rounds are mixtures of the same matrices, and only the part of `own` differs.
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
        for k, profile in enumerate(shared.T, start=m):
            products[:, :m, k] = products[:, k, :m] = (kernel[own] * profile) @ W
        products[:, m:, m:] = F.T @ shared
        return products


def _dot(rows: NDArray[np.float64], C: NDArray[np.float64]) -> NDArray[np.float64]:
    """(b, n) each row times its own C (b, R, n), or times the common C (R, n)."""
    return np.asarray(rows @ C if C.ndim == 2 else np.matmul(rows[:, None, :], C)[:, 0])

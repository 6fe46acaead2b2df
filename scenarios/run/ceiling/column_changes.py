"""How the likelihood of the participation matrix changes if one client's column changes in a round or two.

Under the Gaussian process of `attacks.disaggregation.noise.round_model` the aggregates have the covariance Ω,
and minus twice the log-likelihood per coordinate is the misfit log det Ω + tr(Ω⁻¹K). Client k adds
s κ ∘ (p pᵀ) to Ω, with the energy s of its updates. A flip of its entry in round q changes Ω by

    ±(e aᵀ + a eᵀ),  with e the q-th unit vector and a = s κ(q, ·) ∘ p ± (s/2) e,

plus if the client joins the round, minus if it leaves it. A move from round r to round q is both, and the
common entry s κ(q, r) of the two is not counted. So every change is U M Uᵀ with two or four columns in U, and
the misfit changes by log det(1 + M S) − tr((1 + M S)⁻¹ M T), with S = UᵀΩ⁻¹U and T = UᵀΩ⁻¹KΩ⁻¹U.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.noise.round_model import RoundModel


@dataclass(frozen=True, eq=False)
class _Products:
    """Inner products of the vectors e and a of m rounds, (2m, 2m), the vectors e first."""

    with_inverse: NDArray[np.float64]
    with_energy: NDArray[np.float64]

    def misfit(self, vectors: NDArray[np.intp], M: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n,) change of the misfit if Ω changes by U M Uᵀ; `vectors` (n, c) are the columns of each U."""
        rows, columns = vectors[:, :, None], vectors[:, None, :]
        changed = np.eye(vectors.shape[1]) + M @ self.with_inverse[rows, columns]
        _, log_determinant = np.linalg.slogdet(changed)
        explained = np.linalg.solve(changed, M @ self.with_energy[rows, columns])
        return np.asarray(log_determinant - np.trace(explained, axis1=1, axis2=2))


class ColumnChanges:
    """The misfit after changes of single columns of the participation that a `model` has as its design."""

    def __init__(self, model: RoundModel) -> None:
        self._participation = model.participation
        self._energies = model.energies
        kernel = model.scales.kernel(len(model.design))
        self._kernel = np.ones_like(model.gram) if kernel is None else kernel
        self._inverse = model.inverse()
        self._energy = self._inverse @ model.gram @ self._inverse

    def flips(self, client: int, rounds: NDArray[np.intp]) -> NDArray[np.float64]:
        """(m,) change of the misfit if the client's entry in one of the `rounds` (m,) is the opposite."""
        sign = 1 - 2 * self._participation[rounds, client]
        swap = np.array([[0.0, 1.0], [1.0, 0.0]])
        place = np.arange(len(rounds))
        vectors = np.stack((place, len(rounds) + place), axis=1)
        return self._products(client, rounds).misfit(vectors, sign[:, None, None] * swap)

    def moves(
        self, client: int, rounds: NDArray[np.intp], left: NDArray[np.intp], joined: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """(n,) change of the misfit if the client took part in round `joined` instead of in round `left`.

        Both (n,) are positions in `rounds` (m,), and every joined one is a round without the client.
        """
        M = np.zeros((len(left), 4, 4))
        M[:, 0, 1] = M[:, 1, 0] = -1
        M[:, 2, 3] = M[:, 3, 2] = 1
        common = self._energies[client] * self._kernel[rounds[left], rounds[joined]]
        M[:, 0, 2] = M[:, 2, 0] = -common
        m = len(rounds)
        vectors = np.stack((left, m + left, joined, m + joined), axis=1)
        return self._products(client, rounds).misfit(vectors, M)

    def _products(self, client: int, rounds: NDArray[np.intp]) -> _Products:
        p, s = self._participation[:, client], self._energies[client]
        ones = np.flatnonzero(p)
        along = s * self._kernel[np.ix_(ones, rounds)]
        half = np.where(p[rounds] > 0, -0.5, 0.5) * s

        def products(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
            of_rounds, of_ones = matrix[:, rounds], matrix[:, ones]
            a = of_ones @ along + half * of_rounds
            e_a = a[rounds]
            a_a = along.T @ a[ones] + half[:, None] * e_a
            return np.block([[of_rounds[rounds], e_a], [e_a.T, a_a]])

        return _Products(products(self._inverse), products(self._energy))

"""How clearly the recorded sums show who took part: a test between the truth and its nearest rivals.

The model: a sum of round t is Σₖ Pₜₖ gₖ plus noise, where gₖ is the part of client k's updates that stays the
same from round to round (variance s² per direction), and every update adds its own noise (variance σ²). Seen
along one direction, the sums of all rounds are normal with covariance Σ = s² P Pᵀ + σ² diag(cohort sizes).

A rival column differs from the truth in one entry, or in two entries of a window whose count is published.
The Kullback-Leibler divergence between the two covariances says how many directions tell them apart. This
test is told all other participations, so no attack on sums and counts does better under the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ERROR = 0.05
"""Probability of a wrong column up to which the evidence counts as clear."""
CHERNOFF = 0.25
"""Share of the divergence that bounds the error of a test: a quarter for two normals of equal covariance."""
EXACT = 1e6
"""Signal over noise of sums with rounding errors only."""


@dataclass(frozen=True)
class Signal:
    """How alike the updates of a client are: `ratio` is s²/σ², `directions` are the independent ones.

    `measured` is False as long as too few clients took part twice (then the ratio is 0), and if updates are
    hidden, as by secure aggregation (then they are taken for equal).
    """

    ratio: float = EXACT
    directions: float = 100.0
    measured: bool = False

    @property
    def exact(self) -> bool:
        """Whether a client's updates differ by rounding only."""
        return self.ratio >= EXACT


@dataclass(frozen=True)
class Windows:
    """The rounds that published counts cover: window w ends before round `stops[w]` and begins where the
    one before it ends. Later rounds have no counts."""

    stops: tuple[int, ...] = ()

    def groups(self, rounds: int) -> list[slice]:
        """The windows within the first `rounds`, in order."""
        stops = [stop for stop in self.stops if stop <= rounds]
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]

    def open_from(self, rounds: int) -> int:
        """The first round without a count."""
        return max((stop for stop in self.stops if stop <= rounds), default=0)


def given_away(P: NDArray[np.uint8], windows: Windows) -> NDArray[np.bool_]:
    """(clients,) who took part and whose counts alone leave no choice: all windows are empty or full.

    Only rounds with counts are looked at: the question is whether the published part of a column is known.
    """
    known = P[: windows.open_from(len(P))]
    alone: NDArray[np.bool_] = known.sum(axis=0, dtype=np.int64) > 0
    for rows in windows.groups(len(P)):
        count = P[rows].sum(axis=0, dtype=np.int64)
        alone &= (count == 0) | (count == rows.stop - rows.start)
    return alone


def clear(
    P: NDArray[np.uint8], windows: Windows, signal: Signal, *, margin: float = 1.0
) -> NDArray[np.bool_]:
    """(clients,) whose column a perfect attack would find with an error of at most `ERROR`.

    P (rounds, clients) says who took part. By the union bound over all rivals of a column. A less than
    perfect attack needs `margin` times the evidence.
    """
    divergence = flip_divergence(P, signal.ratio)
    taken = P.astype(bool)
    nearest = np.full(P.shape[1], np.inf)
    rivals = np.zeros(P.shape[1])
    # The divergence of a swap is about the sum of those of its two changes.
    ones, zeros = np.where(taken, divergence, np.inf), np.where(taken, np.inf, divergence)
    for rows in windows.groups(len(P)):
        nearest = np.minimum(nearest, ones[rows].min(axis=0) + zeros[rows].min(axis=0))
        present = taken[rows].sum(axis=0)
        rivals += present * (rows.stop - rows.start - present)
    rest = slice(windows.open_from(len(P)), len(P))
    if rest.start < rest.stop:
        nearest = np.minimum(nearest, divergence[rest].min(axis=0))
        rivals += rest.stop - rest.start
    needed = np.log(np.maximum(rivals, 1) / ERROR)
    return np.asarray(taken.any(axis=0) & (CHERNOFF * signal.directions * nearest > margin * needed))


def flip_divergence(P: NDArray[np.uint8], ratio: float) -> NDArray[np.float64]:
    """(rounds, clients) divergence per direction between P and the same with one entry changed.

    With s² = `ratio` and σ² = 1. A change is of rank two, so it takes the inverse of one clients × clients
    matrix and products: Σ⁻¹ = D⁻¹ - D⁻¹P (I/s² + PᵀD⁻¹P)⁻¹ PᵀD⁻¹, where D holds the cohort sizes.
    """
    from scipy.linalg import cho_factor, cho_solve

    if not ratio:
        return np.zeros(P.shape)
    columns = P.astype(np.float64)
    scaled = columns / np.maximum(columns.sum(axis=1), 1.0)[:, None]  # D⁻¹P
    core = cho_factor(np.eye(P.shape[1]) / ratio + columns.T @ scaled)
    inner = cho_solve(core, scaled.T)  # (clients, rounds)
    precision = 1 / np.maximum(columns.sum(axis=1), 1.0) - np.einsum("tk,kt->t", scaled, inner)  # diag Σ⁻¹
    shares = scaled - inner.T @ (columns.T @ scaled)  # Σ⁻¹P
    energy = np.einsum("tk,tk->k", columns, shares)  # pₖᵀ Σ⁻¹ pₖ
    change = ratio * np.where(P, -shares, shares)
    # Σ' = Σ + s² (p uᵀ + u pᵀ + u uᵀ) for a change u: the two eigenvalues of Σ'Σ⁻¹ that are not 1.
    own = ratio * precision[:, None]
    trace = 2 + 2 * change + own
    determinant = (1 + change) ** 2 + own * (1 - ratio * energy)[None, :]
    determinant = np.maximum(determinant, np.finfo(np.float64).tiny)
    return np.asarray(0.5 * (trace / determinant - 2 + np.log(determinant)))

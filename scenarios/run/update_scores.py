"""How close recovered and estimated updates come to the true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import UNKNOWN, Recovery
from attacks.estimates import Estimates
from fedsim.records import Transcript


@dataclass(frozen=True)
class UpdateScores:
    """The figures of updates in `Disaggregation`."""

    cosine: float
    resolved_cosine: float | None
    estimated_cosine: float
    estimated_error: float | None

    @classmethod
    def of(
        cls,
        recovery: Recovery,
        transcript: Transcript,
        rates: NDArray[np.float64],
        true_updates: NDArray[np.float32],
        took_part: NDArray[np.bool_],
    ) -> UpdateScores:
        """Compare with `true_updates` (K, dim) of the clients that `took_part` (K,).

        `rates` (rounds, K) is the participation that the counts suggest.
        """
        cosines = update_cosines(recovery.updates[took_part], true_updates[took_part])
        resolved = np.isfinite(cosines)
        cosine = float(np.nan_to_num(cosines).mean()) if len(cosines) else 0.0
        expected = np.where(recovery.participation == UNKNOWN, rates, recovery.participation)
        estimated, error = _estimated(Estimates.of(transcript, expected), true_updates, took_part)
        return cls(cosine, float(cosines[resolved].mean()) if resolved.any() else None, estimated, error)


def _estimated(
    estimates: Estimates, true_updates: NDArray[np.float32], took_part: NDArray[np.bool_]
) -> tuple[float, float | None]:
    """Mean cosine over the clients that `took_part`, and the error relative to the true updates."""
    products, squares, true_squares = np.zeros((3, int(took_part.sum())))
    start = 0
    for part in estimates.parts():
        true = np.asarray(true_updates[took_part, start : start + part.shape[1]], dtype=np.float64)
        estimate = part[took_part].astype(np.float64)
        products += np.einsum("kd,kd->k", estimate, true)
        squares += np.einsum("kd,kd->k", estimate, estimate)
        true_squares += np.einsum("kd,kd->k", true, true)
        start += part.shape[1]
    norms = np.sqrt(squares * true_squares)
    cosines = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)
    total = float(np.sum(true_squares))
    left = float(np.sum(squares + true_squares - 2 * products))
    error = float(np.sqrt(max(left, 0.0) / total)) if total else None
    return float(cosines.mean()) if len(cosines) else 0.0, error


def mean_cosine(
    updates: NDArray[np.float32], true_updates: NDArray[np.float32], took_part: NDArray[np.bool_]
) -> float:
    """Mean cosine over the clients that took part; `updates` (K, dim) or (dim,), NaN rows count as 0."""
    estimate = np.broadcast_to(updates, true_updates.shape)[took_part]
    cosines = update_cosines(estimate, true_updates[took_part])
    return float(np.nan_to_num(cosines).mean()) if len(cosines) else 0.0


def update_cosines(updates: NDArray[np.float32], true_updates: NDArray[np.float32]) -> NDArray[np.float64]:
    """(K,) similarity of each recovered update to the true one; NaN where either is missing."""
    products = _products(updates, true_updates)
    norms = np.sqrt(_products(updates, updates)) * np.sqrt(_products(true_updates, true_updates))
    cosines: NDArray[np.float64] = np.full(len(norms), np.nan)
    np.divide(products, norms, out=cosines, where=norms > 0)
    return cosines


def _products(some: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """(K,) inner products in double precision, without a copy of all updates: that can be gigabytes."""
    return np.asarray(np.einsum("kd,kd->k", some, others, dtype=np.float64))

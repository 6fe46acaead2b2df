"""How good a recovery is, with the baselines without which no figure means anything.

This is the only module that sees both a recovery and the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from analytics.report import ParticipationReport
from attacks.disaggregation import Recovery
from attacks.disaggregation.subspace import slices
from attacks.disaggregation.updates import least_squares
from fedsim.records import Transcript
from fedsim.truth import Truth


def score_disaggregation(
    recovery: Recovery, truth: Truth, transcript: Transcript, counts: ParticipationReport
) -> dict[str, Any]:
    """The `disaggregation` part of a result.

    `exact_fraction`: clients whose whole column is right; `bit_accuracy`: entries of P that are right;
    `certified_fraction`: clients with the outcome `proved`; `update_cosine`: mean over the clients that
    took part of the cosine between recovered and true update, where no recovered update counts as 0.
    `outcomes` counts clients by outcome, and `unresolved` those without one by reason. `baselines` holds what
    a guess from the counts alone would give, and the cosine of the mean aggregate (no attack) and of least
    squares with the true P (a perfect attack).
    """
    P = truth.participation[:, recovery.clients.astype(np.int64)]
    true_updates = truth.updates[recovery.clients.astype(np.int64)]
    took_part: NDArray[np.bool_] = P.sum(axis=0) > 0
    right = recovery.participation == P
    return {
        "exact_fraction": float(right.all(axis=0).mean()),
        "bit_accuracy": float(right.mean()),
        "certified_fraction": float((recovery.outcome == "proved").mean()),
        "update_cosine": _mean_cosine(recovery.updates, true_updates, took_part),
        "outcomes": _tally(recovery.outcome),
        "unresolved": _tally(recovery.reason[recovery.outcome == "unresolved"]),
        "false_certificates": int(((recovery.outcome == "proved") & ~right.all(axis=0)).sum()),
        "solver": recovery.solver,
        "seconds": recovery.seconds,
        "baselines": {
            "counts_only_exact_fraction": _guessed_columns(counts, len(P)),
            "counts_only_bit_accuracy": _guessed_bits(counts, len(P)),
            "aggregate_update_cosine": _mean_cosine(_mean_update(transcript), true_updates, took_part),
            "oracle_update_cosine": _mean_cosine(_oracle_updates(transcript, P), true_updates, took_part),
        },
    }


def _tally(texts: NDArray[np.str_]) -> dict[str, int]:
    """How often each text occurs, the most frequent first."""
    names, numbers = np.unique(texts, return_counts=True)
    return {str(names[i]): int(numbers[i]) for i in np.argsort(-numbers, kind="stable")}


def _mean_cosine(
    updates: NDArray[np.float32], true_updates: NDArray[np.float32], took_part: NDArray[np.bool_]
) -> float:
    """Mean cosine over the clients that took part; `updates` (K, dim) or (dim,), NaN rows count as 0."""
    estimate = np.broadcast_to(updates, true_updates.shape)[took_part]
    cosines = update_cosines(estimate, true_updates[took_part])
    return float(np.nan_to_num(cosines).mean()) if len(cosines) else 0.0


def update_cosines(updates: NDArray[np.float32], true_updates: NDArray[np.float32]) -> NDArray[np.float64]:
    """(K,) similarity of each recovered update to the true one; NaN where either is missing."""
    products = np.einsum("kd,kd->k", updates, true_updates, dtype=np.float64)
    norms = np.prod([np.linalg.norm(u.astype(np.float64), axis=1) for u in (updates, true_updates)], axis=0)
    cosines: NDArray[np.float64] = np.full(len(norms), np.nan)
    np.divide(products, norms, out=cosines, where=norms > 0)
    return cosines


def _mean_update(transcript: Transcript) -> NDArray[np.float32]:
    """The best guess at anybody's update without an attack: the mean over all updates in all sums."""
    total = np.concatenate([part.sum(axis=0) for part in slices(transcript.aggregates)])
    return np.asarray(total / max(1, int(transcript.cohort_sizes.sum())), dtype=np.float32)


def _oracle_updates(transcript: Transcript, P: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What least squares gives somebody who knows who took part when."""
    everybody = np.ones(P.shape[1], dtype=np.bool_)
    return least_squares(transcript.aggregates, P, P.T.astype(np.float64), everybody).values


def score_counts(counts: ParticipationReport, truth: Truth) -> dict[str, Any]:
    """What publishing as it was done is worth to the operator, measured against the sums.

    `count_error`: mean absolute error of the published counts (None if there are none); `missing_fraction`:
    rounds of clients that no count covers; `mean_window`: rounds that a count covers on average.
    """
    rounds, clients = truth.participation.shape
    known = ~np.isnan(counts.count)
    client = counts.clients[counts.client[known]].astype(np.int64)
    start, stop = counts.start[known], counts.stop[known]
    running = np.zeros((rounds + 1, clients), dtype=np.int64)
    np.cumsum(truth.participation, axis=0, dtype=np.int64, out=running[1:])
    true = running[stop, client] - running[start, client]
    covered = np.zeros((rounds + 1, clients), dtype=np.int64)
    np.add.at(covered, (start, client), 1)
    np.add.at(covered, (stop, client), -1)
    some = len(client) > 0
    return {
        "count_error": float(np.abs(counts.count[known] - true).mean()) if some else None,
        "missing_fraction": float((np.cumsum(covered, axis=0)[:rounds] == 0).mean()),
        "mean_window": float((stop - start).mean()) if some else None,
    }


def _guessed_columns(counts: ParticipationReport, rounds: int) -> float:
    """Chance of guessing a client's whole column when only its counts are known, mean over clients."""
    length, ones = _answered(counts)
    # In logarithms: the product over a client's windows underflows long before it matters.
    log_chance = np.zeros(len(counts.clients))
    np.add.at(log_chance, counts.client, -np.log(comb(length, ones)))
    log_chance -= np.log(2) * _uncovered(counts, rounds)
    return float(np.exp(log_chance).mean())


def _guessed_bits(counts: ParticipationReport, rounds: int) -> float:
    """Entries that are right when every window is filled with its more frequent value."""
    length, ones = _answered(counts)
    right = np.maximum(ones, length - ones).sum() + 0.5 * _uncovered(counts, rounds).sum()
    return float(right / (rounds * len(counts.clients)))


def _answered(counts: ParticipationReport) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lengths and counts of the windows, both 0 where the device did not answer."""
    length = np.where(np.isnan(counts.count), 0, counts.stop - counts.start).astype(np.float64)
    return length, np.clip(np.round(np.nan_to_num(counts.count)), 0, length)


def _uncovered(counts: ParticipationReport, rounds: int) -> NDArray[np.float64]:
    """How many rounds of each client no count speaks of."""
    length, _ = _answered(counts)
    return np.maximum(0, rounds - np.bincount(counts.client, length, minlength=len(counts.clients)))

"""How good a recovery is, with the baselines without which no figure means anything.

Here and in `scenarios.run.inference` a recovery meets the truth, when the attack is over; reports draw both.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb, logsumexp
from scipy.stats import binom

from analytics.report import ParticipationReport
from attacks.disaggregation import UNKNOWN, Recovery
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.space.mapped_memory import slices
from attacks.disaggregation.updates import least_squares
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.sections import Baselines, Disaggregation

CASES_AT_A_TIME = 100_000
"""Different windows whose numbers of ones are weighed at a time."""


def score_disaggregation(
    recovery: Recovery, truth: Truth, transcript: Transcript, counts: ParticipationReport
) -> Disaggregation:
    """The `disaggregation` section of a result; see there for what each figure means."""
    pseudonymous = len(counts.clients) == 0
    if pseudonymous:
        recovery = named(recovery, truth)
    P = truth.participation[:, recovery.clients.astype(np.int64)]
    true_updates = truth.updates[recovery.clients.astype(np.int64)]
    took_part: NDArray[np.bool_] = P.sum(axis=0) > 0
    right = recovery.participation == P
    exact = right.all(axis=0)
    alone = _alone(P)
    # An unresolved column is a guess: it may be right, but no update comes with it.
    resolved = recovery.outcome != Outcome.UNRESOLVED
    guess = _Guess.best(_windows(counts, *P.shape), transcript.cohort_sizes.sum() / P.size)
    return Disaggregation(
        exact_fraction=float(exact.mean()),
        exact_up_to_names=_up_to_names(recovery.participation, P),
        singled_out_fraction=float((exact & resolved & alone).mean()),
        advantage=float(exact.mean()) - guess.columns,
        pseudonymous=pseudonymous,
        bit_accuracy=float(right.mean()),
        certified_fraction=float((recovery.outcome == "proved").mean()),
        update_cosine=_mean_cosine(recovery.updates, true_updates, took_part),
        update_variance=update_variance(truth, transcript),
        outcomes=_tally(recovery.outcome),
        unresolved=_tally(recovery.reason[recovery.outcome == "unresolved"]),
        false_certificates=int(((recovery.outcome == "proved") & ~exact).sum()),
        solver=recovery.solver,
        seconds=recovery.seconds,
        baselines=Baselines(
            counts_only_exact_fraction=guess.columns,
            counts_only_bit_accuracy=guess.entries,
            oracle_singled_out_fraction=float(alone.mean()),
            aggregate_update_cosine=_mean_cosine(_mean_update(transcript), true_updates, took_part),
            oracle_update_cosine=_mean_cosine(_oracle_updates(transcript, P), true_updates, took_part),
        ),
    )


def _windows(counts: ParticipationReport, rounds: int, clients: int) -> Windows:
    if len(counts.clients) == 0:
        return Windows.none(rounds=rounds, clients=clients)
    return Windows.from_report(counts, rounds)


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


def update_variance(truth: Truth, transcript: Transcript) -> float | None:
    """Mean squared distance of an update from its client's mean, over the mean square of these.

    Distances add up in sums, where clients' deviations are independent: what is left of the sums without the
    means, per participation. None if nobody took part.
    """
    P = truth.participation.astype(np.float64)
    left, energy, start = 0.0, 0.0, 0
    for part in slices(transcript.aggregates):
        stop = start + part.shape[1]
        # Who never took part has no mean, and adds nothing.
        means = np.nan_to_num(np.asarray(truth.updates[:, start:stop], dtype=np.float64))
        left += float(((part - P @ means) ** 2).sum())
        energy += float((P.sum(axis=0) @ means**2).sum())
        start = stop
    return left / energy if energy else None


def _oracle_updates(transcript: Transcript, P: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What least squares gives somebody who knows who took part when."""
    everybody = np.ones(P.shape[1], dtype=np.bool_)
    return least_squares(transcript.aggregates, P, P.T.astype(np.float64), everybody).values


def named(recovery: Recovery, truth: Truth) -> Recovery:
    """A recovery without names, with every column given to the client whose true one it is most like.

    Only the truth can do that: it makes a score of what was found, and finds nothing. Each column goes to one
    client at most, so that as many entries as possible agree; clients that are left are unresolved.
    """
    from scipy.optimize import linear_sum_assignment

    P, clients = truth.participation, truth.participation.shape[1]
    found = recovery.participation
    agree = sum((found == bit).T.astype(np.float32) @ (P == bit).astype(np.float32) for bit in (0, 1))
    pseudonym, client = linear_sum_assignment(agree, maximize=True)

    def spread(values: NDArray[Any], fill: object) -> NDArray[Any]:
        every = np.full((clients, *values.shape[1:]), fill, dtype=values.dtype)
        every[client] = values[pseudonym]
        return every

    reason = np.full(clients, "no column was found for this client", dtype=object)
    reason[client] = recovery.reason[pseudonym]
    return replace(
        recovery,
        clients=np.arange(clients),
        participation=spread(found.T, UNKNOWN).T,
        outcome=spread(recovery.outcome.astype("<U10"), Outcome.UNRESOLVED),
        confidence=spread(recovery.confidence, 0.0),
        reason=reason.astype(np.str_),
        updates=spread(recovery.updates, np.nan),
        update_error=spread(recovery.update_error, np.nan),
    )


def _up_to_names(found: NDArray[np.uint8], P: NDArray[np.uint8]) -> float:
    """The fraction of the true columns that were found, whoever they were given to."""
    have, want = (Counter(column.tobytes() for column in matrix.T) for matrix in (found, P))
    return float((have & want).total() / P.shape[1])


def _alone(P: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(K,) clients that took part, and whose column no other client has."""
    _, group, size = np.unique(P, axis=1, return_inverse=True, return_counts=True)
    return np.asarray((size[group.reshape(-1)] == 1) & (P.sum(axis=0) > 0))


@dataclass(frozen=True)
class _Guess:
    """What somebody makes of the counts and the mean rate alone: chances of being right."""

    columns: float
    """Of a client's whole column, mean over clients."""
    entries: float

    @classmethod
    def best(cls, windows: Windows, rate: float) -> _Guess:
        """The most likely column of every client, and the more likely value of every entry.

        A window's number of ones is weighed by its count and the count's error, and by the rate.
        """
        rate = float(np.clip(rate, 1e-9, 1 - 1e-9))
        lengths = np.broadcast_to(windows.lengths, windows.count.shape)
        cells = np.stack((lengths.astype(np.float64), windows.count, windows.sd), axis=-1).reshape(-1, 3)
        # Exact counts are a handful of different cases, however many there are.
        cases, which = np.unique(cells, axis=0, return_inverse=True)
        parts = np.array_split(cases, max(1, len(cases) // CASES_AT_A_TIME))
        log_chance, right = (np.concatenate(x) for x in zip(*(_filled(p, rate) for p in parts), strict=True))
        rest = windows.rounds - lengths.sum(axis=1)
        by_client = log_chance[which.reshape(windows.count.shape)].sum(axis=1)
        by_client += rest * np.log(max(rate, 1 - rate))
        entries = right[which].sum() + rest.sum() * max(rate, 1 - rate)
        return cls(float(np.exp(by_client).mean()), float(entries / (windows.rounds * windows.clients)))


def _filled(cases: NDArray[np.float64], rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For windows of (length, count, sd): log-chance of the likeliest filling, and entries it gets right."""
    length, count, sd = (column[:, None] for column in cases.T)
    ones = np.arange(int(length.max(initial=0)) + 1)
    weight = binom.logpmf(ones, length, rate)
    exact = np.where(ones == count, 0.0, -np.inf)
    noisy = weight - 0.5 * ((ones - count) / np.where(sd > 0, sd, 1)) ** 2
    weight = np.where(np.isnan(count), weight, np.where(sd > 0, noisy, exact))
    weight = weight - logsumexp(weight, axis=1, keepdims=True)
    ways = np.log(np.maximum(comb(length, ones), 1))
    expected = np.exp(weight) @ ones
    return (weight - ways).max(axis=1), np.maximum(expected, length[:, 0] - expected)

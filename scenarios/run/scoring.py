"""How good a recovery is, beside its baselines.

Only here and in `scenarios.run.inference` does a recovery meet the truth, after the attack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb, logsumexp

from analytics.report import ParticipationReport
from attacks.disaggregation import UNKNOWN, DisaggregationProblem, Recovery
from attacks.disaggregation.counts.binomial import log_binomial
from attacks.disaggregation.counts.count_errors import log_likelihood
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.space.mapped_memory import small_slices
from attacks.disaggregation.updates import least_squares
from attacks.reconciliation import posed_problem
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.ceiling.ceiling import Achieved, score_ceiling
from scenarios.run.ceiling.privacy import privacy_bounds
from scenarios.run.sections import Baselines, Disaggregation, LikelyColumns, Statement
from scenarios.run.update_scores import UpdateScores, mean_cosine

CASES_AT_A_TIME = 100_000
"""Distinct (length, count, sd) of windows that are evaluated at a time; limits memory."""


def score_disaggregation(
    recovery: Recovery,
    truth: Truth,
    transcript: Transcript,
    counts: ParticipationReport,
    *,
    defences: Iterable[Statement] = (),
    made_beside_truth: bool = False,
) -> Disaggregation:
    """The `disaggregation` section of a result; see there for what each figure means.

    `defences` are the statements of the run's defences, whose (ε, δ) bounds every test.

    A recovery from a process that could have read the truth is refused, unless the caller says
    `made_beside_truth`: planted problems and experiments in one process are measured so.
    """
    if not recovery.confinement and not made_beside_truth:
        raise ValueError(
            "the recovery was made in a process that could read the truth: attack in an AttackProcess, or "
            "say made_beside_truth=True"
        )
    pseudonymous = len(counts.clients) == 0
    if pseudonymous:
        recovery = named(recovery, truth)
    P = truth.participation[:, recovery.clients.astype(np.int64)]
    true_updates = truth.updates[recovery.clients.astype(np.int64)]
    took_part: NDArray[np.bool_] = P.sum(axis=0) > 0
    right = recovery.participation == P
    exact = right.all(axis=0)
    alone = _alone(P)
    # An unresolved column is a guess. It may be right, but it has no update.
    resolved = recovery.outcome != Outcome.UNRESOLVED
    windows, rate = _windows(counts, *P.shape), float(transcript.cohort_sizes.sum() / P.size)
    guess = _Guess.best(windows, rate)
    expected = _expected(windows, rate)
    by_chance, found = _Ones.among(expected, P), _Ones.among(recovery.participation == 1, P)
    singled_out = float((exact & resolved & alone).mean())
    ceiling = score_ceiling(
        _problem(transcript, counts, clients=P.shape[1]),
        P,
        exact=exact,
        proved=recovery.outcome == Outcome.PROVED,
        alone=alone,
        attack=Achieved(found.found or 0.0, found.precision or 0.0, float(exact.mean()), singled_out),
        guess=Achieved(by_chance.found or 0.0, by_chance.precision or 0.0, guess.columns),
    )
    updates = UpdateScores.of(recovery, transcript, expected, true_updates, took_part)
    return Disaggregation(
        ones_found=found.found,
        ones_precision=found.precision,
        ceiling=ceiling.model_copy(update={"privacy": tuple(privacy_bounds(defences))}),
        exact_fraction=float(exact.mean()),
        exact_up_to_names=_up_to_names(recovery.participation, P),
        singled_out_fraction=singled_out,
        advantage=float(exact.mean()) - guess.columns,
        pseudonymous=pseudonymous,
        bit_accuracy=float(right.mean()),
        certified_fraction=float((recovery.outcome == "proved").mean()),
        update_cosine=updates.cosine,
        resolved_update_cosine=updates.resolved_cosine,
        estimated_update_cosine=updates.estimated_cosine,
        estimated_update_error=updates.estimated_error,
        update_variance=update_variance(truth, transcript),
        outcomes=_tally(recovery.outcome),
        unresolved=_tally(recovery.reason[recovery.outcome == "unresolved"]),
        likely=_likely(recovery, exact),
        false_certificates=int(((recovery.outcome == "proved") & ~exact).sum()),
        solver=recovery.solver,
        seconds=recovery.seconds,
        baselines=Baselines(
            counts_only_exact_fraction=guess.columns,
            counts_only_ones_found=by_chance.found,
            counts_only_ones_precision=by_chance.precision,
            counts_only_bit_accuracy=guess.entries,
            oracle_singled_out_fraction=float(alone.mean()),
            aggregate_update_cosine=mean_cosine(_mean_update(transcript), true_updates, took_part),
            oracle_update_cosine=mean_cosine(_oracle_updates(transcript, P), true_updates, took_part),
        ),
    )


def _windows(counts: ParticipationReport, rounds: int, clients: int) -> Windows:
    if len(counts.clients) == 0:
        return Windows.none(rounds=rounds, clients=clients)
    return Windows.from_report(counts, rounds)


def _problem(transcript: Transcript, counts: ParticipationReport, *, clients: int) -> DisaggregationProblem:
    """The problem that the attack had, with a known number of clients where no count gives them a name."""
    named = len(counts.clients) > 0
    return posed_problem(
        transcript.aggregates,
        counts if named else None,
        num_clients=None if named else clients,
        cohort_sizes=transcript.cohort_sizes,
        layer_shapes=transcript.layer_shapes,
    )


def _expected(windows: Windows, rate: float) -> NDArray[np.float64]:
    """(rounds, K) the participation that the counts suggest; the mean `rate` where nothing is known."""
    rates = windows.rates().T
    return np.where(np.isnan(rates), min(rate, 1.0), rates)


@dataclass(frozen=True)
class _Ones:
    """Share of the true participations that are `found`, and of the claimed ones that are right."""

    found: float | None
    precision: float | None

    @classmethod
    def among(cls, claimed: NDArray[Any], P: NDArray[np.uint8]) -> _Ones:
        """Of `claimed` participations (rounds, K), certain (True) or expected (a probability)."""
        right = float((claimed * (P == 1)).sum())
        ones, claims = int(P.sum(dtype=np.int64)), float(claimed.sum())
        return cls(right / ones if ones else None, right / claims if claims else None)


def _likely(recovery: Recovery, exact: NDArray[np.bool_]) -> LikelyColumns:
    """What the confidence in likely columns promised, and how many of these are `exact` (K,)."""
    likely = recovery.outcome == Outcome.LIKELY
    return LikelyColumns(
        columns=int(likely.sum()),
        expected=float(recovery.confidence[likely].sum()),
        right=int((likely & exact).sum()),
    )


def _tally(texts: NDArray[np.str_]) -> dict[str, int]:
    """The number of times that each text occurs, most frequent first."""
    names, numbers = np.unique(texts, return_counts=True)
    return {str(names[i]): int(numbers[i]) for i in np.argsort(-numbers, kind="stable")}


def _mean_update(transcript: Transcript) -> NDArray[np.float32]:
    """The best guess of any update without an attack: the mean over all updates in all sums."""
    total = np.concatenate([part.sum(axis=0) for part in small_slices(transcript.aggregates)])
    return np.asarray(total / max(1, int(transcript.cohort_sizes.sum())), dtype=np.float32)


def update_variance(truth: Truth, transcript: Transcript) -> float | None:
    """Mean squared distance of an update from its client's mean, relative to the mean square of the means.

    Deviations of different clients are independent, so their squares add up in a sum. The distance is
    therefore the energy of the sums without the means, per participation. None if nobody took part.
    """
    P = truth.participation.astype(np.float64)
    left, energy, start = 0.0, 0.0, 0
    for part in small_slices(transcript.aggregates):
        stop = start + part.shape[1]
        # Clients that never took part have no mean, and add nothing.
        means = np.nan_to_num(np.asarray(truth.updates[:, start:stop], dtype=np.float64))
        rest = P @ means
        np.subtract(part, rest, out=rest)
        left += float(np.square(rest, out=rest).sum())
        energy += float((P.sum(axis=0) @ means**2).sum())
        start = stop
    return left / energy if energy else None


def _oracle_updates(transcript: Transcript, P: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Least squares with the true participation."""
    everybody = np.ones(P.shape[1], dtype=np.bool_)
    return least_squares(transcript.aggregates, P, P.T.astype(np.float64), everybody).values


def named(recovery: Recovery, truth: Truth) -> Recovery:
    """A recovery without names, with its columns assigned to the clients whose true columns are most similar.

    The assignment needs the truth, so it serves only to score. Each column goes to at most one client, so
    that as many entries as possible agree. Clients without a column are unresolved.
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
        rows=None if recovery.rows is None else spread(recovery.rows, 0.0),
    )


def _up_to_names(found: NDArray[np.uint8], P: NDArray[np.uint8]) -> float:
    """The fraction of the true columns that were found, for whichever client."""
    have, want = (Counter(column.tobytes() for column in matrix.T) for matrix in (found, P))
    return float((have & want).total() / P.shape[1])


def _alone(P: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(K,) whether a client took part and no other client has the same column."""
    _, group, size = np.unique(P, axis=1, return_inverse=True, return_counts=True)
    return np.asarray((size[group.reshape(-1)] == 1) & (P.sum(axis=0) > 0))


@dataclass(frozen=True)
class _Guess:
    """The best guess from the counts and the mean rate alone: its chances of being right."""

    columns: float
    """Chance that a client's whole column is right, mean over clients."""
    entries: float

    @classmethod
    def best(cls, windows: Windows, rate: float) -> _Guess:
        """Guess the most likely column of every client, and the more likely value of every entry.

        The number of ones in a window has a binomial prior by the `rate`, weighted by the likelihood of its
        count.
        """
        rate = float(np.clip(rate, 1e-9, 1 - 1e-9))
        lengths = np.broadcast_to(windows.lengths, windows.count.shape)
        published = (windows.count, windows.sd, windows.laplace.astype(np.float64))
        cells = np.stack((lengths.astype(np.float64), *published), axis=-1).reshape(-1, 4)
        # Exact counts have only a handful of distinct cases.
        cases, which = np.unique(cells, axis=0, return_inverse=True)
        parts = np.array_split(cases, max(1, len(cases) // CASES_AT_A_TIME))
        log_chance, right = (np.concatenate(x) for x in zip(*(_filled(p, rate) for p in parts), strict=True))
        rest = windows.rounds - lengths.sum(axis=1)
        by_client = log_chance[which.reshape(windows.count.shape)].sum(axis=1)
        by_client += rest * np.log(max(rate, 1 - rate))
        entries = right[which].sum() + rest.sum() * max(rate, 1 - rate)
        return cls(float(np.exp(by_client).mean()), float(entries / (windows.rounds * windows.clients)))


def _filled(cases: NDArray[np.float64], rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For windows (length, count, sd, whether Laplace): log-probability of the likeliest filling, expected
    right entries."""
    length, count, sd, laplace = (column[:, None] for column in cases.T)
    ones = np.arange(int(length.max(initial=0)) + 1)
    weight = log_binomial(ones, length, rate)
    exact = np.where(ones == count, 0.0, -np.inf)
    noisy = weight + log_likelihood(ones - count, np.where(sd > 0, sd, 1), laplace > 0)
    weight = np.where(np.isnan(count), weight, np.where(sd > 0, noisy, exact))
    weight = weight - logsumexp(weight, axis=1, keepdims=True)
    ways = np.log(np.maximum(comb(length, ones), 1))
    expected = np.exp(weight) @ ones
    return (weight - ways).max(axis=1), np.maximum(expected, length[:, 0] - expected)

"""What a data-protection officer files: who sees what, every ε, evidence and its limits, residual risk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from analytics.report import ParticipationReport
from fedsim.defences.accounting import gaussian_epsilon
from scenarios.audit.audit import Audit
from scenarios.audit.record import SCHEMA_VERSION, AuditRecord
from scenarios.audit.words import advice, conclusion, noise, scored

DELTA = 1e-5
"""The δ at which an ε is stated."""


@dataclass(frozen=True)
class Epsilon:
    """(ε, δ) for one `unit`, and the mechanism that gives it."""

    epsilon: float
    delta: float
    unit: str
    mechanism: str


@dataclass(frozen=True)
class Statement:
    """One heading of the report, and its sentences."""

    heading: str
    sentences: tuple[str, ...]


def epsilons(counts: ParticipationReport | None) -> tuple[Epsilon, ...]:
    """Every privacy parameter that the log states: only the noise on its counts gives one."""
    if counts is None or not len(counts.sd) or not (counts.sd > 0).all():
        return ()
    sd = float(counts.sd.min())
    per_client = int(np.bincount(counts.client).max())
    mechanism = f"noise with a standard deviation of {sd:.3g} or more on every count, taken for Gaussian"
    return (
        Epsilon(gaussian_epsilon(sd, 1, DELTA), DELTA, "one participation of one client", mechanism),
        Epsilon(
            gaussian_epsilon(sd / np.sqrt(per_client), 1, DELTA),
            DELTA,
            f"one participation in each of a client's {per_client} windows",
            mechanism,
        ),
    )


def filed(audit: Audit) -> AuditRecord:
    """Every figure and every statement, as `result.json` holds them."""
    return AuditRecord.model_validate(
        {
            "schema_version": SCHEMA_VERSION,
            **audit.summary(),
            "privacy": [asdict(stated) for stated in epsilons(audit.counts)],
            "statements": [
                {"heading": statement.heading, "sentences": list(statement.sentences)}
                for statement in statements(audit)
            ],
        }
    )


def statements(audit: Audit) -> tuple[Statement, ...]:
    """The sections of the report in words, in the order in which they are read."""
    return (
        Statement("Who sees what", tuple(_threat_model(audit))),
        Statement("Privacy parameters", tuple(_privacy(audit))),
        Statement("Evidence and its limits", tuple(_evidence(audit))),
        Statement("Residual risk", tuple(_residual_risk(audit))),
        Statement("What was tried", tuple(_tried(audit))),
    )


def _threat_model(audit: Audit) -> Iterator[str]:
    seen = [f"{audit.rounds} sums of {audit.dim} entries, one per round"]
    if audit.named:
        seen.append("counts or participations that carry the clients' names")
    if audit.sizes_known:
        seen.append("the number of updates in each sum")
    yield (
        "The attacker is whoever can read this log: the operator of the server, its administrators, and "
        "anybody who obtains a copy."
    )
    yield f"The attacker sees {', '.join(seen)}."
    yield (
        "The attacker sees no single update and does not interfere with the training. A server that deviates "
        "from the protocol, or that colludes with clients, learns more than this report says."
    )


def _privacy(audit: Audit) -> Iterator[str]:
    stated_epsilons = epsilons(audit.counts)
    for stated in stated_epsilons:
        yield (
            f"ε = {stated.epsilon:.3g} at δ = {stated.delta:g}; unit: {stated.unit}; mechanism: "
            f"{stated.mechanism}. It covers the counts only, not the sums."
        )
    if not stated_epsilons:
        yield (
            "The log states no differential privacy: there is no ε, and so neither a unit nor a δ. An ε of "
            "the training, if there is one, has to be filed with its own unit and δ."
        )


def _evidence(audit: Audit) -> Iterator[str]:
    yield conclusion(audit)
    yield (
        "A proved column is the only one that fits the sums and the counts. A consistent column fits "
        "exactly, without a proof. A likely column is right with about the stated confidence."
    )
    yield f"Noise in the sums: {noise(audit)}."
    if audit.score is not None:
        yield f"The log keeps the truth, which the attack did not see: {scored(audit.score)}."
    else:
        yield (
            "There is no truth to compare with. All figures are the attack's own estimates, and counts that "
            "are wrong without saying so can mislead it."
        )


def _residual_risk(audit: Audit) -> Iterator[str]:
    match audit.verdict:
        case "inconclusive":
            yield (
                "Unknown. The log contradicts what it was taken for, so this audit neither shows a leak nor "
                "rules one out. Mend the points above and run it again."
            )
        case "exposed":
            yield (
                f"High. {audit.separated} of {audit.num_clients} clients can be told apart by the rounds "
                f"that they took part in, and the own updates of {audit.singled_out} can be computed. An "
                "update can reveal training data, labels or properties of a client; this audit did not try "
                "that."
            )
        case _:
            yield (
                "Not ruled out. This attack separated nobody. More rounds, other records or a better attack "
                "may succeed, and counts and sums that are kept stay open to it."
            )
    unresolved = audit.num_clients - audit.separated
    if unresolved and audit.verdict == "exposed":
        yield f"The {unresolved} clients that were not separated are not thereby safe."


def _tried(audit: Audit) -> Iterator[str]:
    numbers = ", then ".join(f"{tried.num_clients} clients ({tried.told_by})" for tried in audit.tried)
    yield f"The solver {audit.recovery.solver} was run with {numbers}."
    for alternative in audit.alternatives:
        same = f"{alternative.separated} of {audit.separated}"
        yield f"With {alternative.change}: {same} clients come out the same."
    if not audit.alternatives:
        yield "No changes of the log were tried."
    yield from advice(audit)

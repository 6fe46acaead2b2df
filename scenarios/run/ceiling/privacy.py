"""The bound that (ε, δ) puts on every test, whoever makes it: it needs no model of an attacker.

Let a mechanism be (ε, δ)-differentially private, and let a test say which of two equally likely neighbouring
worlds it sees. It is right with a probability of at most (e^ε + δ) / (1 + e^ε) (Kairouz, Oh and Viswanath,
"The composition theorem for differential privacy", 2015). What the worlds differ in is the unit that ε is
stated for: the defence says it as `hides`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp

from scenarios.run.sections import PrivacyBound, Statement

SERVER = "the server"
"""The party whose tests matter here, as statements name it (`protects_from`)."""


def privacy_bounds(statements: Iterable[Statement]) -> Iterator[PrivacyBound]:
    """The bounds of every defence that states an ε against the server, for one round and for all."""
    for statement in statements:
        if "epsilon_per_round" not in statement or statement.get("protects_from", SERVER) != SERVER:
            continue
        for rounds, epsilon in (
            (1, statement["epsilon_per_round"]),
            (statement["releases"], statement["epsilon_in_all"]),
        ):
            yield PrivacyBound(
                defence=statement["name"],
                hides=statement["hides"],
                rounds=rounds,
                epsilon=float(epsilon),
                delta=float(statement["delta"]),
                right_at_most=right_at_most(epsilon, statement["delta"]),
            )


def right_at_most(epsilon: float, delta: float) -> float:
    """The largest probability of telling two equally likely neighbouring worlds apart."""
    return min(1.0, (1 + delta * exp(-epsilon)) / (1 + exp(-epsilon)))

"""The types of an audit's `result.json`, and the JSON schema that ships with the package.

To add a figure, add a field here, raise `SCHEMA_VERSION`, and run `make schema`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from scenarios.audit.readings import Source
from scenarios.run.sections import Section

SCHEMA_FILE = Path(__file__).with_name("audit.schema.json")
SCHEMA_VERSION = 1
"""Version of the keys in an audit's `result.json`; raise it whenever they change."""


class DoubtRecord(Section):
    """What makes an audit inconclusive, and the option that mends it."""

    finding: str
    mend: str


class TriedRecord(Section):
    """A number of clients with which the attack was tried, and how many of them it separated."""

    num_clients: int
    told_by: Source
    separated: int


class ClientsRecord(Section):
    """How many clients are in the sums, who says so, and how many have a name."""

    number: int
    told_by: Source
    named: int
    tried: list[TriedRecord]


class NoiseRecord(Section):
    """Energy outside the clients' column space, relative to the energy inside; `exact`: only rounding."""

    relative: float
    exact: bool


class AlternativeRecord(Section):
    """A change of the log, and the number of clients that come out the same in spite of it."""

    change: str
    separated: int


class ScoreRecord(Section):
    """Claimed and right columns, if the log keeps the truth."""

    clients: int
    claimed: int
    expected: float
    right: int
    false_proofs: int


class EpsilonRecord(Section):
    """A privacy parameter: (ε, δ) for one `unit`, with the mechanism that gives it."""

    epsilon: float
    delta: float
    unit: str
    mechanism: str


class StatementRecord(Section):
    """One heading of the report, and its sentences."""

    heading: str
    sentences: list[str]


class AuditRecord(Section):
    """Everything in an audit's `result.json`."""

    schema_version: int
    verdict: Literal["exposed", "not separated", "inconclusive"]
    doubts: list[DoubtRecord]
    rounds: int
    entries: int
    clients: ClientsRecord
    rank: int
    noise: NoiseRecord
    separated: int
    singled_out: int
    outcomes: dict[str, int]
    expected_right: float
    counts_doubted_sd: float | None
    unresolved: dict[str, int]
    alternatives: list[AlternativeRecord]
    sums_alone: int | None
    score: ScoreRecord | None
    privacy: list[EpsilonRecord]
    statements: list[StatementRecord]
    solver: str
    seconds: float


def audit_schema() -> dict[str, Any]:
    """The JSON schema of an audit's `result.json`."""
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**about, **AuditRecord.model_json_schema(), "title": "result.json of fedsim audit"}


if __name__ == "__main__":
    from fedsim.core.files import write_json

    write_json(SCHEMA_FILE, audit_schema())

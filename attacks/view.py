"""What the attacker sees: the transcript and the published counts. Nothing else reaches an attack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytics.report import ParticipationReport
from fedsim.core.files import reading
from fedsim.records import Transcript


@dataclass(frozen=True)
class AttackerView:
    """The whole input of every attack; the counts are an empty table where nothing is published."""

    transcript: Transcript
    counts: ParticipationReport

    @classmethod
    def load(cls, transcript: Path, counts: Path) -> AttackerView:
        """From the two places of a run directory that a server has: its transcript, and the counts."""
        sums = Transcript.load(transcript)
        with reading(counts, "the counts of a run"):
            return cls(sums, ParticipationReport.read_csv(counts, rounds=len(sums.aggregates)))

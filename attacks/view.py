"""The attacker's view: the transcript and the published counts. Nothing else reaches an attack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytics.report import ParticipationReport
from attacks.disaggregation import DisaggregationProblem
from attacks.reconciliation import posed_problem
from fedsim.core.files import reading
from fedsim.records import Transcript


@dataclass(frozen=True)
class AttackerView:
    """The whole input of every attack; `counts` is an empty table if nothing is published."""

    transcript: Transcript
    counts: ParticipationReport

    @classmethod
    def load(cls, transcript: Path, counts: Path) -> AttackerView:
        """Read the two parts of a run directory that a server has: its transcript and the counts."""
        sums = Transcript.load(transcript)
        with reading(counts, "the counts of a run"):
            return cls(sums, ParticipationReport.read_csv(counts, rounds=len(sums.aggregates)))

    def problem(self) -> DisaggregationProblem:
        """The disaggregation problem that the view poses."""
        return posed_problem(
            self.transcript.aggregates,
            self.counts if len(self.counts.clients) else None,
            cohort_sizes=self.transcript.cohort_sizes,
            layer_shapes=self.transcript.layer_shapes,
        )

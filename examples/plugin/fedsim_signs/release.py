"""A release policy for counts."""

from dataclasses import replace

import numpy as np
from pydantic import PositiveInt

from analytics import ParticipationReport
from analytics.release import Policy


class Capped(Policy):
    """Publish no count above a cap."""

    most: PositiveInt = 3

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts; those above the cap are missing."""
        return replace(counts, count=np.where(counts.count > self.most, np.nan, counts.count))

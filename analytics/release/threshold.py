"""Suppressed small counts."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from analytics.release.policy import Policy
from analytics.report import ParticipationReport


class Threshold(Policy):
    """Publishes counts below a limit only as "below the limit".

    In the table such a count is the mean of 0..limit−1, with the error of a uniform number in that range.
    """

    name: Literal["threshold"] = "threshold"
    limit: Annotated[int, Field(ge=2)]

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts with all small ones replaced by the same number."""
        small = counts.count < self.limit
        error = np.sqrt((self.limit**2 - 1) / 12)
        return replace(
            counts,
            count=np.where(small, (self.limit - 1) / 2, counts.count),
            noise_sd=np.where(small, np.hypot(counts.sd, error), counts.sd),
            laplace=counts.is_laplace & ~small,
        )

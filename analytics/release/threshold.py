"""Suppressed small counts."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from analytics.release.policy import Policy
from analytics.report import ParticipationReport


class Threshold(Policy):
    """Counts below a limit are not told apart: all that is published of them is that they are below.

    In the table that is the middle of 0..limit−1, with the error of a number that can be any of them.
    """

    name: Literal["threshold"] = "threshold"
    limit: Annotated[int, Field(ge=2)]

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts with the small ones blurred into one another."""
        small = counts.count < self.limit
        error = np.sqrt((self.limit**2 - 1) / 12)
        return replace(
            counts,
            count=np.where(small, (self.limit - 1) / 2, counts.count),
            noise_sd=np.where(small, np.hypot(counts.sd, error), counts.sd),
        )

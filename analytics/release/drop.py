"""Dropped counts."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from analytics.release.policy import Policy
from analytics.report import ParticipationReport


class Drop(Policy):
    """Withholds a random fraction of the counts."""

    name: Literal["drop"] = "drop"
    fraction: Annotated[float, Field(ge=0, le=1)]
    keeps_whole_counts: ClassVar[bool] = True

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts with some of them missing."""
        dropped = rng.random(len(counts.count)) < self.fraction
        return replace(counts, count=np.where(dropped, np.nan, counts.count))

"""Gaussian noise on counts."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from analytics.release.policy import Policy
from analytics.report import ParticipationReport


class Gaussian(Policy):
    """Adds independent Gaussian noise to every count; states no privacy guarantee."""

    name: Literal["gaussian"] = "gaussian"
    sd: PositiveFloat

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts with noise."""
        noise = self.sd * rng.standard_normal(len(counts.count))
        return replace(
            counts, count=counts.count + noise, noise_sd=np.hypot(counts.sd, self.sd), laplace=False
        )

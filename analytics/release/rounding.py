"""Rounded counts."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from analytics.release.policy import Policy
from analytics.report import ParticipationReport


class Rounding(Policy):
    """Rounds counts to the nearest multiple of a number, halves upwards.

    The stated error assumes that all remainders are equally likely.
    """

    name: Literal["rounding"] = "rounding"
    multiple: Annotated[int, Field(ge=2)]

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The rounded counts."""
        remainders = np.arange(self.multiple, dtype=np.float64)
        error = np.sqrt(((self._rounded(remainders) - remainders) ** 2).mean())
        sd = np.hypot(counts.sd, error)
        return replace(counts, count=self._rounded(counts.count), noise_sd=sd, laplace=False)

    def _rounded(self, count: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.floor(count / self.multiple + 0.5) * self.multiple)

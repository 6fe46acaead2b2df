"""What a release policy is: a change to the table of counts, and a public statement about it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from analytics.report import ParticipationReport
from fedsim.core.settings import Settings

Statement = dict[str, Any]
"""A policy's name and parameters, and what it promises: public, so the attacker knows it too."""


class Policy(Settings):
    """A step between the devices' answers and what is published.

    A policy says in the report itself what its counts are worth (`noise_sd`, NaN for no count): that is how
    an attacker who knows the policy makes use of it. The same report and `rng` state give the same result.
    """

    name: str
    keeps_whole_counts: ClassVar[bool] = False
    """Whether one participation still changes a count by one, and counts stay whole numbers."""
    wants_whole_counts: ClassVar[bool] = False

    @abstractmethod
    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts after this step."""

    def statement(self, counts: ParticipationReport) -> Statement:
        """The policy and its parameters; `counts` are those that it will be applied to."""
        return self.model_dump(mode="json")

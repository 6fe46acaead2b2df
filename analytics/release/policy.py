"""The base class of release policies: a change to the counts, and a public statement about it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from analytics.report import ParticipationReport
from fedsim.core.plugins import PlugIn

Statement = dict[str, Any]
"""The name, parameters and guarantees of a policy. It is public, so the attacker knows it too."""


class Policy(PlugIn):
    """A step between the devices' answers and the published counts.

    A policy states the error of its counts in the report (`noise_sd`, and NaN for no count), so that an
    attacker who knows the policy can use it. The same report and `rng` state give the same result.
    """

    keeps_whole_counts: ClassVar[bool] = False
    """Whether counts stay integers, and one participation still changes a count by one."""
    wants_whole_counts: ClassVar[bool] = False
    """Whether every policy before this one must have `keeps_whole_counts`."""

    @abstractmethod
    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts after this step."""

    def statement(self, counts: ParticipationReport) -> Statement:
        """The policy and its parameters; `counts` are the counts before this step."""
        return self.model_dump(mode="json")

"""Gradient disaggregation: who took part when, and each client's own update, from sums and counts.

Plain numpy in and out. A caller needs to know neither Flower nor torch.
"""

from attacks.disaggregation.disaggregate import disaggregate
from attacks.disaggregation.problem import DisaggregationProblem, NotFiniteError, ProblemError
from attacks.disaggregation.recovery import UNKNOWN, Recovery

__all__ = ["UNKNOWN", "DisaggregationProblem", "NotFiniteError", "ProblemError", "Recovery", "disaggregate"]

"""Release policies, which change the counts between the devices' answers and their publication.

A policy is a settings object with an `apply` method, and a scenario lists any number of them. To add a
policy, write its class in a new file and add it to the union below.
"""

from typing import Annotated

from pydantic import Field

from analytics.release.coarsening import Coarsening
from analytics.release.drop import Drop
from analytics.release.gaussian import Gaussian
from analytics.release.policy import Policy, Statement
from analytics.release.private import Private
from analytics.release.rounding import Rounding
from analytics.release.threshold import Threshold
from fedsim.core.plugins import Extensible

Release = Annotated[
    Drop | Rounding | Threshold | Coarsening | Gaussian | Private,
    Field(discriminator="name"),
    Extensible("release", Policy),
]

__all__ = [
    "Coarsening",
    "Drop",
    "Gaussian",
    "Policy",
    "Private",
    "Release",
    "Rounding",
    "Statement",
    "Threshold",
]

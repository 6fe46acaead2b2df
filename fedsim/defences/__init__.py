"""Defences of updates and sums; a scenario lists any number of them.

Each is a settings object with the hooks and the declarations of `Defence`. To add one, write its class in a
file of its own and add it to the union below. Defences that change the cohorts are ways of participation: see
`fedsim.trusted.schedule`.
"""

from typing import Annotated

from pydantic import AfterValidator, Field

from fedsim.core.plugins import Extensible
from fedsim.defences.central_dp import CentralDp
from fedsim.defences.clipping import Clipping
from fedsim.defences.defence import Defence, UpdateDefence, in_order
from fedsim.defences.local_dp import LocalDp
from fedsim.defences.noise import Noise
from fedsim.defences.quantisation import Quantisation
from fedsim.defences.top_k import TopK

AnyDefence = Annotated[
    Clipping | Noise | LocalDp | TopK | Quantisation | CentralDp,
    Field(discriminator="name"),
    Extensible("defences", Defence),
]

Defences = Annotated[tuple[AnyDefence, ...], Field(strict=False), AfterValidator(in_order)]
"""All defences of a scenario, in the order in which they change an update."""

__all__ = [
    "AnyDefence",
    "CentralDp",
    "Clipping",
    "Defence",
    "Defences",
    "LocalDp",
    "Noise",
    "Quantisation",
    "TopK",
    "UpdateDefence",
]

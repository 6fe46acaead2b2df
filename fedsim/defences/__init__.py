"""Defences of updates and sums; a scenario lists any number of them.

Each is a settings object with the hooks of `Defence`. To add one, write its class in a file of its own and
add it to the union below. Defences by the choice of cohorts are ways to take part: see `fedsim.schedule`.
"""

from typing import Annotated

from pydantic import Field

from fedsim.defences.central_dp import CentralDp
from fedsim.defences.clipping import Clipping
from fedsim.defences.local_dp import LocalDp
from fedsim.defences.noise import Noise
from fedsim.defences.quantisation import Quantisation
from fedsim.defences.top_k import TopK
from fedsim.settings import BY_NAME

AnyDefence = Annotated[
    Clipping | Noise | LocalDp | TopK | Quantisation | CentralDp, Field(discriminator="name"), BY_NAME
]

__all__ = ["AnyDefence", "CentralDp", "Clipping", "LocalDp", "Noise", "Quantisation", "TopK"]

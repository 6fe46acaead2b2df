"""Defences of updates and sums; a scenario lists any number of them.

Each is a settings object with the hooks of `Defence`. To add one, write its class in a file of its own and
add it to the union below. Defences that change the cohorts are kinds of participation: see
`fedsim.trusted.schedule`.
"""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from fedsim.core.settings import BY_NAME
from fedsim.defences.central_dp import CentralDp
from fedsim.defences.clipping import Clipping
from fedsim.defences.defence import Defence
from fedsim.defences.local_dp import LocalDp
from fedsim.defences.noise import Noise
from fedsim.defences.quantisation import Quantisation
from fedsim.defences.top_k import TopK

AnyDefence = Annotated[
    Clipping | Noise | LocalDp | TopK | Quantisation | CentralDp, Field(discriminator="name"), BY_NAME
]


def _in_order(defences: tuple[Defence, ...]) -> tuple[Defence, ...]:
    bound = None
    for defence in defences:
        if bound is not None and not defence.never_lengthens:
            # One update would add more to a sum than its noise was made for: ε would not hold.
            raise PydanticCustomError(
                "order", "expected {a} before {b}", {"a": defence.name, "b": bound.name}
            )
        bound = bound or (defence if defence.counts_on_length else None)
    return defences


Defences = Annotated[tuple[AnyDefence, ...], Field(strict=False), AfterValidator(_in_order)]
"""All of a scenario, in the order in which they meet an update."""

__all__ = ["AnyDefence", "CentralDp", "Clipping", "Defences", "LocalDp", "Noise", "Quantisation", "TopK"]

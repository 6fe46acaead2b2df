"""The settings of masked aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from fedsim.core.errors import UserError
from fedsim.trusted.masking.fixed_point import FixedPoint
from fedsim.trusted.rounds import SummationSettings

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod
    from flwr.serverapp import Grid

    from fedsim.trusted.masking.server_side import MaskedSummation


class Masked(SummationSettings):
    """Pairwise masks with key agreement, secret shares and dropout recovery: the protocol itself."""

    name: Literal["masked"] = "masked"
    further_messages: ClassVar[int] = 3
    """To every member of a cohort besides the call for training: keys, shares and unmasking."""
    threshold: Annotated[float, Field(gt=0.5, le=1)] = 0.6
    """The part of a cohort that has to deliver; with less the round is void. More than half, or a server
    that lies about who dropped out could unmask single updates."""
    largest_entry: PositiveFloat = 1.0
    """Entries of an update beyond this cannot be sent, and end the run."""
    bits: Annotated[int, Field(ge=4, le=53)] = 24
    """An entry is rounded to one of 2^bits steps between ±largest_entry."""
    modulus_bits: Literal[32, 64] = 32
    """Masked entries are numbers of this many bits; what they have beyond `bits` is room for the sum."""

    @property
    def fixed_point(self) -> FixedPoint:
        """How an update becomes whole numbers."""
        return FixedPoint(self.largest_entry, self.bits, self.modulus_bits)

    def needed(self, cohort_size: int) -> int:
        """How many of a cohort have to deliver."""
        # The margin keeps 0.6 · 5 = 3.0000000000000004 from asking for four.
        return max(1, ceil(self.threshold * cohort_size - 1e-9))

    def check_cohort(self, size: int) -> None:
        """A sum of this many updates must not be able to wrap around."""
        most = self.fixed_point.most_summands
        if size > most:
            raise UserError(
                f"federation.aggregation.modulus_bits is {self.modulus_bits}: sums of {size} updates with "
                f"{self.bits} bits can overflow, expected cohorts of at most {most}, fewer bits, or 64"
            )

    def enrol(self, grid: Grid, nodes: Sequence[int]) -> MaskedSummation:
        """No device has to register before the first round."""
        from fedsim.trusted.masking.server_side import MaskedSummation

        return MaskedSummation(self)

    def device_mods(self) -> list[Mod]:
        """Devices mask what they send."""
        from fedsim.trusted.masking.device_side import masking_mod

        return [masking_mod(self)]

    def teach(self, app: ClientApp) -> None:
        """Devices agree on keys, exchange shares and help to unmask sums."""
        from fedsim.trusted.masking.device_side import answer_masking_queries

        answer_masking_queries(app)

"""The settings of masked aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from fedsim.core.errors import UserError
from fedsim.trusted.masking.fixed_point import FixedPoint
from fedsim.trusted.masking.neighbours import LARGEST_COHORT, Neighbourhood, neighbourhood
from fedsim.trusted.rounds import SummationSettings

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod
    from flwr.serverapp import Grid

    from fedsim.trusted.masking.server_side import MaskedSummation


class Masked(SummationSettings):
    """Pairwise masks with signed keys, secret shares, dropout recovery and a consistency check.

    Devices enforce these settings themselves: the server cannot talk them into weaker ones.
    """

    name: Literal["masked"] = "masked"
    further_messages: ClassVar[int] = 4
    """To every member of a cohort besides the call for training: keys, shares, confirmation and unmasking."""
    threshold: Annotated[float, Field(gt=0.5, le=1)] = 0.67
    """The part of a cohort that has to deliver; with less the round is void. With a threshold t, a server
    that lies learns no single update as long as less than 2 t - 1 of a cohort, here a third, colludes."""
    minimum_cohort: Annotated[int, Field(ge=3)] = 3
    """Fewest updates in a sum; with fewer the round is void. In a sum of two, each knows the other's."""
    largest_entry: PositiveFloat = 1.0
    """Entries of an update beyond this cannot be sent, and end the run."""
    bits: Annotated[int, Field(ge=4, le=53)] = 24
    """An entry is rounded to one of 2^bits steps between ±largest_entry."""
    modulus_bits: Literal[32, 64] = 32
    """Masked entries are numbers of this many bits; the bits beyond `bits` are room for the sum."""

    @property
    def fixed_point(self) -> FixedPoint:
        """How an update becomes whole numbers."""
        return FixedPoint(self.largest_entry, self.bits, self.modulus_bits)

    def needed(self, cohort_size: int) -> int:
        """How many of a cohort have to deliver; more than there are, if the cohort is too small."""
        # The margin keeps 0.6 · 5 = 3.0000000000000004 from asking for four.
        return max(self.minimum_cohort, ceil(self.threshold * cohort_size - 1e-9))

    def neighbourhood(self, cohort_size: int) -> Neighbourhood:
        """How many neighbours a device of a cohort has, and how many of them can restore its secrets."""
        return neighbourhood(cohort_size, self.needed(cohort_size))

    def check_cohort(self, size: int) -> None:
        """A sum of this many updates must not be able to wrap around, and has to hide each of them."""
        most = self.fixed_point.most_summands
        if size > most:
            raise UserError(
                f"federation.aggregation.modulus_bits is {self.modulus_bits}: sums of {size} updates with "
                f"{self.bits} bits can overflow, expected cohorts of at most {most}, fewer bits, or 64"
            )
        if size > LARGEST_COHORT:
            raise UserError(
                f"federation.aggregation is masked: cohorts of {size} devices, "
                f"expected at most {LARGEST_COHORT}"
            )

    def enrol(self, grid: Grid, nodes: Sequence[int]) -> MaskedSummation:
        """Register the long-term keys of all devices, before the first round."""
        from fedsim.trusted.masking.server_side import MaskedSummation

        return MaskedSummation.enrol(self, grid, nodes)

    def device_mods(self) -> list[Mod]:
        """Devices mask what they send."""
        from fedsim.trusted.masking.device_side import MaskingDevice

        return [MaskingDevice(self).masking_mod]

    def teach(self, app: ClientApp) -> None:
        """Devices enrol, agree on keys, exchange shares and help to unmask sums."""
        from fedsim.trusted.masking.device_side import MaskingDevice
        from fedsim.trusted.masking.enrolment import ENROLMENT_ANSWERS

        for query, answer in (ENROLMENT_ANSWERS | MaskingDevice(self).answers).items():
            app.query(query)(answer)

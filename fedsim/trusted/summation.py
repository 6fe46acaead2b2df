"""The ways of summing that a scenario can choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedsim.core.settings import BY_NAME
from fedsim.trusted.masking import Masked
from fedsim.trusted.rounds import SummationSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod
    from flwr.serverapp import Grid

    from fedsim.trusted.rounds import Summation


class Ideal(SummationSettings):
    """Sum and forget: what secure aggregation promises, without running the protocol."""

    name: Literal["ideal"] = "ideal"
    further_messages: ClassVar[int] = 0

    def check_cohort(self, size: int) -> None:
        """Any number of updates can be summed."""

    def enrol(self, grid: Grid, nodes: Sequence[int]) -> Summation:
        """No device has to register before the first round."""
        from fedsim.trusted.ideal import IdealSummation

        return IdealSummation()

    def device_mods(self) -> list[Mod]:
        """Devices send their updates as they are."""
        return []

    def teach(self, app: ClientApp) -> None:
        """Devices have nothing to answer."""


class Thresholded(Ideal):
    """Sum and forget, but withhold entries to which fewer than `least` clients contributed: they become zero.

    A word that one client of the cohort typed then leaves no trace in the sum. Secure aggregation by masks
    cannot do this, because nobody sees who contributed; a trusted machine can.
    """

    name: Literal["thresholded"] = "thresholded"  # type: ignore[assignment]
    least: Annotated[int, Field(ge=2)] = 3

    def enrol(self, grid: Grid, nodes: Sequence[int]) -> Summation:
        """No device has to register before the first round."""
        from fedsim.trusted.ideal import IdealSummation

        return IdealSummation(self.least)


Aggregation = Annotated[Ideal | Thresholded | Masked, Field(discriminator="name"), BY_NAME]

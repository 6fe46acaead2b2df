"""How updates are summed before the server sees anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedsim.core.settings import BY_NAME, Settings
from fedsim.trusted.masking import Masked

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod

    from fedsim.trusted.rounds import Invitation, SummingRound


class Ideal(Settings):
    """Sum and forget: what secure aggregation promises, without running the protocol."""

    name: Literal["ideal"] = "ideal"
    further_messages: ClassVar[int] = 0

    def check_cohort(self, size: int) -> None:
        """Any number of updates can be summed."""

    def open_round(self, invitation: Invitation) -> SummingRound:
        """Begin a round."""
        from fedsim.trusted.rounds import IdealRound

        return IdealRound(invitation)

    def device_mods(self) -> list[Mod]:
        """Devices send their updates as they are."""
        return []

    def teach(self, app: ClientApp) -> None:
        """Devices have nothing to answer."""


Aggregation = Annotated[Ideal | Masked, Field(discriminator="name"), BY_NAME]

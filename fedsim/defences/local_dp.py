"""Local differential privacy, by Flower's own mod."""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from fedsim.defences.defence import Defence

if TYPE_CHECKING:
    import numpy as np
    from flwr.clientapp.typing import Mod
    from numpy.typing import NDArray


class LocalDp(Defence):
    """Every device clips its update and adds the noise of Flower's `LocalDpMod`, in every round.

    The mod scales its noise by the textbook formula for one release at `epsilon` and `delta`, which is
    proved only for ε up to 1. The statement has the ε of all rounds, from an accountant. Later defences see
    the noisy update only, so any of them may follow: post-processing keeps ε.
    """

    name: Literal["local_dp"] = "local_dp"
    states_epsilon: ClassVar[bool] = True
    norm: PositiveFloat
    """Updates are clipped to this norm, so two of them differ by at most twice as much."""
    epsilon: PositiveFloat
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise per entry, divided by the largest distance of two updates."""
        return sqrt(2 * log(1.25 / self.delta)) / self.epsilon

    def device_mods(self, seed: int, place: int) -> list[Mod]:
        """Flower's mod, made to work on updates."""
        from fedsim.defences.flower_mods import for_updates

        return [for_updates(self._mod(), seed, place)]

    def _mod(self) -> Mod:
        from flwr.clientapp.mod import LocalDpMod

        return LocalDpMod(self.norm, 2 * self.norm, self.epsilon, self.delta)

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The update, clipped and with noise, by the same mod."""
        from fedsim.defences.flower_mods import changed_update

        return changed_update(self._mod(), update, rng)

    def statement(self, most_rounds: int) -> dict[str, Any]:
        """Also ε of one release and of all of a client's releases, at `delta`."""
        from fedsim.defences.accounting import gaussian_epsilon

        return {
            **super().statement(most_rounds),
            "hides": "a client's updates, against any others in their place",
            "noise_sd": 2 * self.norm * self.noise_multiplier,
            "epsilon_per_round": gaussian_epsilon(self.noise_multiplier, 1, self.delta),
            "epsilon_in_all": gaussian_epsilon(self.noise_multiplier, most_rounds, self.delta),
            "releases": most_rounds,
        }

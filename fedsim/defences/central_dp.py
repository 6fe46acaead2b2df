"""Central differential privacy: clipped updates, and noise on their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fedsim.defences.clipping import clipped
from fedsim.defences.defence import UpdateDefence

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy


class CentralDp(UpdateDefence):
    """Devices clip their updates, and the sum or the model gets Gaussian noise.

    On the `sum`, the trusted aggregation adds the noise before the server sees anything: it protects from the
    server. On the `model`, the server adds the noise itself, as Flower's strategy wrapper does: it protects
    from readers of the models, while the server has the exact sum.
    """

    name: Literal["central_dp"] = "central_dp"
    never_lengthens: ClassVar[bool] = True
    needs_bounded_length: ClassVar[bool] = True
    states_epsilon: ClassVar[bool] = True
    norm: PositiveFloat
    """Updates are clipped to this norm: one update moves a sum by at most as much."""
    noise_multiplier: PositiveFloat
    """Standard deviation of the noise per entry of the sum, in units of `norm`."""
    noise_on: Literal["sum", "model"] = "sum"
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @property
    def needs_plain_mean(self) -> bool:
        """Noise on the model is scaled for what one update moves a mean by."""
        return self.noise_on == "model"

    def on_update(self, update: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The update, no longer than `norm`."""
        return clipped(update, self.norm)

    def on_sum(self, total: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The sum with noise."""
        if self.noise_on != "sum":
            return total
        sd = np.float32(self.noise_multiplier * self.norm)
        return total + sd * rng.standard_normal(len(total), dtype=np.float32)

    def on_server(self, strategy: Strategy, *, seed: int, place: int) -> Strategy:
        """Flower's wrapper around the server's strategy, if the noise goes on the model."""
        if self.noise_on != "model":
            return strategy
        from fedsim.defences.noisy_model import NoisyModel

        return NoisyModel(
            strategy,
            noise_multiplier=self.noise_multiplier,
            norm=self.norm,
            seed=seed,
            place=place,
        )

    def statement(self, most_rounds: int) -> dict[str, Any]:
        """Also ε at `delta`, of one round and of all rounds of the client with the most rounds.

        Cohort sizes are public. So two neighbouring worlds differ in the updates of one client, which are
        zeros in one of them, and not in its participation.
        """
        from fedsim.defences.accounting import gaussian_epsilon

        return {
            **super().statement(most_rounds),
            "protects_from": "the server"
            if self.noise_on == "sum"
            else "those who see models, not the server",
            "hides": "a client's updates, against zeros in their place",
            "epsilon_per_round": gaussian_epsilon(self.noise_multiplier, 1, self.delta),
            "epsilon_in_all": gaussian_epsilon(self.noise_multiplier, most_rounds, self.delta),
            "releases": most_rounds,
        }

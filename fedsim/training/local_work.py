"""FedAvg's local work, as the server asks it of every client."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from fedsim.core.settings import Settings
from fedsim.training.learning_rates import AnyRateSchedule, Constant

Weighting = Literal["equal", "examples"]
"""How much an update counts in a sum. `equal`: every update once. `examples`: a device multiplies its update
by the number of examples behind it, and the server divides the sum by all of them, as FedAvg does."""


class LocalWork(Settings):
    """The paper's D, b, e, learning rate, m and f. Public: the server writes this recipe itself."""

    dataset_size: PositiveInt = 32
    """Examples that a client owns; the mean if `data.partition.size_spread` is set."""
    batch_size: PositiveInt = 16
    local_epochs: PositiveInt = 1
    local_steps: PositiveInt | None = None
    """Number of steps that replaces the epochs; a client that runs out of examples begins another epoch."""
    lr: PositiveFloat = 0.01
    lr_schedule: AnyRateSchedule = Constant()
    """How the learning rate changes from round to round."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.0
    """Starts from zero in every round: a device keeps no optimiser state between rounds."""
    data_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of its examples that a client draws afresh, without replacement, in every round."""

    algorithm: Literal["fedavg", "scaffold"] = "fedavg"
    """`scaffold`: control variates of clients and server take the clients' drift out of every step."""
    weight_decay: NonNegativeFloat = 0.0
    proximal_mu: NonNegativeFloat = 0.0
    """FedProx: weight of half the squared distance from the model that was sent."""
    gradient_clip: PositiveFloat | None = None
    """Largest norm of the gradient of a step."""
    weighting: Weighting = "equal"

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.local_steps is not None and self.local_epochs != 1:
            raise PydanticCustomError("steps", "expected either local_epochs or local_steps")
        if self.optimiser == "adam" and self.momentum:
            raise PydanticCustomError("steps", "adam has momentum of its own: expected momentum = 0")
        if self.algorithm == "scaffold":
            if self.optimiser != "sgd" or self.momentum:
                raise PydanticCustomError(
                    "steps", "scaffold takes plain steps: expected optimiser = sgd and momentum = 0"
                )
            if self.weighting != "equal":
                raise PydanticCustomError(
                    "steps", "scaffold averages control variates of clients: expected weighting = equal"
                )
        return self

    @property
    def vectors(self) -> int:
        """Vectors of the model's length in a message to or from a client: SCAFFOLD sends two."""
        return 2 if self.algorithm == "scaffold" else 1

    @property
    def is_plain(self) -> bool:
        """Whether a step is the gradient's alone, with or without momentum."""
        others = self.weight_decay or self.proximal_mu or self.gradient_clip is not None
        return self.optimiser == "sgd" and not others

    def in_round(self, round_index: int) -> Self:
        """The work of a round, counted from 0: the same with the learning rate of that round."""
        factor = self.lr_schedule.factor(round_index)
        return self if factor == 1 else self.model_copy(update={"lr": self.lr * factor})

    @property
    def steps(self) -> int:
        """Steps that a client of the usual size takes in one round."""
        return self.local_steps or self.local_epochs * self.batches_per_epoch

    @property
    def examples_per_round(self) -> int:
        """Examples that a client of the usual size trains on in one round."""
        return max(1, round(self.data_fraction * self.dataset_size))

    @property
    def batches_per_epoch(self) -> int:
        """Steps of one pass over those examples; the last batch may be smaller."""
        return -(-self.examples_per_round // self.batch_size)

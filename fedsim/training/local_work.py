"""FedAvg's local work, as the server asks it of every client."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fedsim.core.settings import Settings

Weighting = Literal["equal", "examples"]
"""How much an update counts in a sum. `equal`: every update once. `examples`: a device multiplies its update
by the number of examples behind it, and the server divides the sum by all of them, as FedAvg does."""


class LocalWork(Settings):
    """The paper's D, b, e, learning rate, m and f. Public: the server writes this recipe itself."""

    dataset_size: PositiveInt = 32
    """Examples that a client owns; the mean if `data.partition.size_spread` is set."""
    batch_size: PositiveInt = 16
    local_epochs: PositiveInt = 1
    lr: PositiveFloat = 0.01
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.0
    """Starts from zero in every round: a device keeps no optimiser state between rounds."""
    data_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of its examples that a client draws afresh, without replacement, in every round."""

    weighting: Weighting = "equal"

    @property
    def examples_per_round(self) -> int:
        """Examples that a client of the usual size trains on in one round."""
        return max(1, round(self.data_fraction * self.dataset_size))

    @property
    def batches_per_epoch(self) -> int:
        """Steps of one pass over those examples; the last batch may be smaller."""
        return -(-self.examples_per_round // self.batch_size)

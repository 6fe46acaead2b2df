"""The settings of the honest world: what clients do with their data, and how rounds are run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fedsim.failures import Failures
from fedsim.schedule import Bernoulli, Participation
from fedsim.settings import Settings
from fedsim.summation import Aggregation, Ideal


class ClientSettings(Settings):
    """FedAvg's local work: the paper's D, b, e, learning rate, m and f."""

    dataset_size: PositiveInt = 32
    """Images that a client owns; the mean where `data.partition.size_spread` is set."""
    batch_size: PositiveInt = 16
    local_epochs: PositiveInt = 1
    lr: PositiveFloat = 0.01
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.0
    """Starts from zero in every round: a device keeps no optimiser state between rounds."""
    data_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of its images that a client draws afresh, without replacement, in every round."""
    failures: Failures = Failures()


class FederationSettings(Settings):
    """How many clients and rounds there are, who is invited, and what the server does with the sum."""

    clients: PositiveInt
    rounds: PositiveInt
    server_model: Literal["fixed", "updated"] = "fixed"
    """`fixed`: the server sends the same model in every round (the paper's main threat);
    `updated`: it applies the mean update, as an honest but curious server does."""
    participation: Participation = Bernoulli()
    aggregation: Aggregation = Ideal()

"""The settings of the honest world: what clients do with their data, and how rounds are run."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from fedsim.core.settings import Settings
from fedsim.training.local_work import LocalWork
from fedsim.trusted.failures import Failures
from fedsim.trusted.schedule import Bernoulli, Participation
from fedsim.trusted.summation import Aggregation, Ideal


class ClientSettings(LocalWork):
    """What a client does with its examples, and what may go wrong on the way."""

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

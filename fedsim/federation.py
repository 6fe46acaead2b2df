"""The settings of the honest world: the work of clients, and the rounds of the federation."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from fedsim.core.settings import Settings
from fedsim.server.strategies import AnyStrategy, FedAvg
from fedsim.training.local_work import LocalWork
from fedsim.trusted.failures import Failures
from fedsim.trusted.schedule import Bernoulli, Participation
from fedsim.trusted.summation import Aggregation, Ideal


class ClientSettings(LocalWork):
    """The local work of a client, and the failures of its device."""

    failures: Failures = Failures()


class FederationSettings(Settings):
    """The number of clients and rounds, the choice of cohorts, the summing, and the server's model."""

    clients: PositiveInt
    rounds: PositiveInt
    server_model: Literal["fixed", "updated"] = "fixed"
    """`fixed`: the server sends the same model in every round (the paper's main threat);
    `updated`: it applies the mean update, as an honest but curious server does."""
    strategy: AnyStrategy = FedAvg()
    """What an `updated` server does with the mean update of a round."""
    participation: Participation = Bernoulli()
    aggregation: Aggregation = Ideal()
    evaluate_every: PositiveInt | None = None
    """Rounds between two points of the training curves; by default a run has about twenty points."""

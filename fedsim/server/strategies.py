"""The server strategies that a scenario can name: Flower's own, with their settings.

A strategy is known by the name of Flower's class in lower case. Flower's settings about sampling are missing
here: the schedule chooses the cohorts. Nothing here imports Flower when it is loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat
from pydantic_core import PydanticCustomError

from fedsim.core.plugins import Extensible, PlugIn

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy

Beta = Annotated[float, Field(ge=0, lt=1)]
"""The share of an old moment that stays in the next one."""


class ServerStrategy(PlugIn, ABC):
    """What the server does with the mean of a cohort.

    To add one, write a subclass with a `name` and add it to `AnyStrategy`.
    """

    @abstractmethod
    def build(self) -> Strategy:
        """A Flower strategy that expects one reply with the cohort's mean model.

        It keeps the contract of `fedsim.server.resuming.Resumable` if its runs shall be resumed.
        """


class FedAvg(ServerStrategy):
    """The next model is the mean of the cohort's models."""

    name: Literal["fedavg"] = "fedavg"

    def build(self) -> Strategy:
        """Flower's FedAvg."""
        from fedsim.server.flower_strategies import ServerFedAvg

        return ServerFedAvg(min_train_nodes=1, min_available_nodes=1)


class FedAvgM(ServerStrategy):
    """FedAvg with a learning rate and momentum on the server (Hsu, Qi, Brown 2019)."""

    name: Literal["fedavgm"] = "fedavgm"
    server_learning_rate: PositiveFloat = 1.0
    server_momentum: Beta = 0.0

    def build(self) -> Strategy:
        """Flower's FedAvgM."""
        from fedsim.server.flower_strategies import ServerFedAvgM

        return ServerFedAvgM(
            min_train_nodes=1,
            min_available_nodes=1,
            server_learning_rate=self.server_learning_rate,
            server_momentum=self.server_momentum,
        )


class FedAdagrad(ServerStrategy):
    """Adagrad on the server: steps shrink where updates have been large (Reddi et al. 2021)."""

    name: Literal["fedadagrad"] = "fedadagrad"
    eta: PositiveFloat = 0.1
    """The server's learning rate."""
    tau: NonNegativeFloat = 1e-3
    """Added to the root of the second moment, so that small updates make small steps."""

    def build(self) -> Strategy:
        """Flower's FedAdagrad."""
        from fedsim.server.flower_strategies import ServerFedAdagrad

        return ServerFedAdagrad(min_train_nodes=1, min_available_nodes=1, eta=self.eta, tau=self.tau)


class FedAdam(FedAdagrad):
    """Adam on the server: means of updates and of their squares (Reddi et al. 2021)."""

    name: Literal["fedadam"] = "fedadam"  # type: ignore[assignment]
    beta_1: Beta = 0.9
    beta_2: Beta = 0.99

    def build(self) -> Strategy:
        """Flower's FedAdam."""
        from fedsim.server.flower_strategies import ServerFedAdam

        return ServerFedAdam(
            min_train_nodes=1, min_available_nodes=1, **self.model_dump(include={"eta", "tau", *_BETAS})
        )


class FedYogi(FedAdam):
    """Adam on the server whose second moment grows slowly (Reddi et al. 2021)."""

    name: Literal["fedyogi"] = "fedyogi"  # type: ignore[assignment]
    eta: PositiveFloat = 0.01

    def build(self) -> Strategy:
        """Flower's FedYogi."""
        from fedsim.server.flower_strategies import ServerFedYogi

        return ServerFedYogi(
            min_train_nodes=1, min_available_nodes=1, **self.model_dump(include={"eta", "tau", *_BETAS})
        )


_BETAS = ("beta_1", "beta_2")

_NEED_SINGLE_UPDATES = {
    "fedmedian": "takes the median of single updates",
    "fedtrimmedavg": "drops the extremes of single updates",
    "krum": "compares single updates",
    "multikrum": "compares single updates",
    "bulyan": "compares single updates",
    "qfedavg": "weighs single updates by their loss",
}
"""Strategies of Flower's that cannot work here, and why."""


def _refuse_single_updates(value: Any) -> Any:
    """One clear line about a strategy that no sum can serve."""
    name = value.get("name") if isinstance(value, dict) else value
    if isinstance(name, str) and (why := _NEED_SINGLE_UPDATES.get(name)):
        raise PydanticCustomError(
            "single_updates",
            "{name} {why}, but behind secure aggregation the server gets their sum only; "
            "expected fedavg, fedavgm, fedadam, fedadagrad or fedyogi",
            {"name": name, "why": why},
        )
    return value


AnyStrategy = Annotated[
    FedAvg | FedAvgM | FedAdam | FedAdagrad | FedYogi,
    Field(discriminator="name"),
    Extensible("strategies", ServerStrategy),
    BeforeValidator(_refuse_single_updates),
]

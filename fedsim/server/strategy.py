"""The server's own strategies: what a server does with the one sum that reaches it in a round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from fedsim.flower import WEIGHT, cohort_size, metrics_in, parameters_of, record_vector, vector_record
from fedsim.server.resuming import Stateless
from fedsim.server.wrapper import StrategyWrapper


def server_strategy(server_model: Literal["fixed", "updated"]) -> Strategy:
    """Flower's FedAvg, which learns from sums, or a server that never changes its model."""
    fedavg = ServerFedAvg(min_train_nodes=1, min_available_nodes=1)
    return MeanFromSum(fedavg) if server_model == "updated" else FixedModel(fedavg)


class ServerFedAvg(Stateless, FedAvg):
    """Flower's FedAvg, which remembers nothing between two rounds."""


class MeanFromSum(StrategyWrapper):
    """Lets any mean-based Flower strategy learn from a sum of updates.

    Such strategies expect replies that carry trained models. The mean model of the cohort is the model
    that was sent plus the sum of updates divided by the cohort's size: every update counts once.
    """

    def __init__(self, inner: Strategy) -> None:
        super().__init__(inner)
        self._sent: ArrayRecord | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the model that goes out, until the round is aggregated."""
        self._sent = arrays
        return self.inner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Turn the sum into the cohort's mean model; a round without updates changes nothing."""
        (reply,) = replies
        clients = cohort_size(reply)
        if clients == 0:
            return None, None
        mean_model = parameters_of(self._sent) + record_vector(reply) / np.float32(clients)
        weight = metrics_in(reply.content, "metrics")[WEIGHT]
        reply.content = RecordDict(
            {"arrays": vector_record(mean_model), "metrics": MetricRecord({WEIGHT: weight})}
        )
        return self.inner.aggregate_train(server_round, [reply])


class FixedModel(StrategyWrapper):
    """A server that sends the same model in every round, so that a client's update hardly changes."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Ignore the replies: None tells Flower to keep the model."""
        return None, None

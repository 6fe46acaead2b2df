"""The server's own strategies: what a server does with the one sum that reaches it in a round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedsim.flower import (
    PARAMETERS,
    WEIGHT,
    cohort_size,
    metrics_in,
    parameters_of,
    record_vector,
    vector_record,
)
from fedsim.server.strategies import FedAvg, ServerStrategy
from fedsim.server.wrapper import StrategyWrapper
from fedsim.training.local_work import Weighting


def server_strategy(
    server_model: Literal["fixed", "updated"],
    strategy: ServerStrategy | None = None,
    weighting: Weighting = "equal",
) -> Strategy:
    """A server that learns from sums by the `strategy` (FedAvg), or one that never changes its model."""
    inner = (strategy or FedAvg()).build()
    return MeanFromSum(inner, weighting) if server_model == "updated" else FixedModel(inner)


class MeanFromSum(StrategyWrapper):
    """Lets any mean-based Flower strategy learn from a sum of updates.

    Such strategies expect replies that carry trained models. The mean model of the cohort is the model
    that was sent plus the sum of updates divided by the cohort's size: every update counts once. If devices
    have multiplied their updates by their number of examples, the sum is divided by all these examples.
    """

    def __init__(self, inner: Strategy, weighting: Weighting = "equal") -> None:
        super().__init__(inner)
        self._weighting = weighting
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
        weight = metrics_in(reply.content, "metrics")[WEIGHT]
        divisor = np.float32(clients if self._weighting == "equal" else weight)  # type: ignore[arg-type]
        mean_model = parameters_of(self._sent) + record_vector(reply) / divisor
        reply.content = RecordDict(
            {"arrays": vector_record(mean_model), "metrics": MetricRecord({WEIGHT: weight})}
        )
        following, metrics = self.inner.aggregate_train(server_round, [reply])
        if following is not None and following[PARAMETERS].dtype != "float32":
            # FedAdam computes in double precision. A checkpoint and a device hold single precision, and the
            # strategy has to go on from what they hold.
            following = ArrayRecord({PARAMETERS: Array(parameters_of(following))})
        return following, metrics


class FixedModel(StrategyWrapper):
    """A server that sends the same model in every round, so that a client's update hardly changes."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Ignore the replies: None tells Flower to keep the model."""
        return None, None

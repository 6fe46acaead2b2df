"""The server's part of SCAFFOLD: it keeps a control variate beside its model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedsim.flower import cohort_size, parameters_of, record_vector, vector_record
from fedsim.server.wrapper import StrategyWrapper


class ControlVariates(StrategyWrapper):
    """Lets any strategy of a server take part in SCAFFOLD.

    The vector that is sent holds the model and then the control variate, so a sum holds the updates and then
    the changes of the clients' control variates. The strategy inside sees models and updates only. The
    server's control variate stays the mean of those of all `clients`: it moves by the sum of their changes
    divided by the number of clients.
    """

    def __init__(self, inner: Strategy, clients: int) -> None:
        super().__init__(inner)
        self._clients = clients
        self._sent: NDArray[np.float32] | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the control variate behind the model."""
        self._sent = parameters_of(arrays)
        model, _ = np.split(self._sent, 2)
        messages = list(self.inner.configure_train(server_round, vector_record(model), config, grid))
        for message in messages:
            message.content["arrays"] = arrays
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the sum of updates inside, and move the control variate."""
        (reply,) = replies
        assert self._sent is not None, "a round is configured before it is aggregated"
        model, control = np.split(self._sent, 2)
        updates, changes = np.split(record_vector(reply), 2)
        if cohort_size(reply) == 0:
            return None, None
        reply.content["arrays"] = vector_record(updates)
        following, metrics = self.inner.aggregate_train(server_round, [reply])
        if following is not None:
            model = parameters_of(following)
        return vector_record(np.concatenate((model, control + changes / np.float32(self._clients)))), metrics

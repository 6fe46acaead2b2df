"""Flower's strategies count their rounds from 1; a run that is continued is past that."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedsim.server.wrapper import StrategyWrapper


class LaterRounds(StrategyWrapper):
    """Outermost of all: what Flower calls round 1 is round `done` + 1 to everybody inside."""

    def __init__(self, inner: Strategy, *, done: int) -> None:
        super().__init__(inner)
        self._done = done

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages that start a round of training."""
        return self.inner.configure_train(self._done + server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, and metrics, from the replies of a round."""
        return self.inner.aggregate_train(self._done + server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages that follow a round of training."""
        return self.inner.configure_evaluate(self._done + server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Metrics from the replies to those."""
        return self.inner.aggregate_evaluate(self._done + server_round, replies)

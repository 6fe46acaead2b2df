"""The one way in which strategies are extended here: a strategy wraps another one."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedsim.server.resuming import resumable


class StrategyWrapper(Strategy):
    """Passes every call on to `inner`; a subclass overrides what it changes or wants to see.

    A wrapper keeps the contract of `Resumable` if the strategy inside does. A subclass that itself remembers
    something between two rounds extends `state` and `load_state`, with records under keys of its own.
    """

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages that start a round of training."""
        return self.inner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, and metrics, from the replies of a round."""
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages that follow a round of training."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Metrics from the replies to those messages."""
        return self.inner.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings."""
        self.inner.summary()

    def state(self) -> RecordDict:
        """What the strategy inside remembers; `NotResumableError` if it does not say."""
        return resumable(self.inner).state()

    def load_state(self, state: RecordDict) -> None:
        """Restore the strategy inside."""
        resumable(self.inner).load_state(state)

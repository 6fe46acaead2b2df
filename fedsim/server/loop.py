"""The loop over rounds: Flower's own, with rounds that may start later than 1 and with hooks between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedsim.flower import parameters_of, vector_record
from fedsim.server.hooks import RoundHook
from fedsim.server.resuming import merged
from fedsim.server.wrapper import StrategyWrapper


class RoundLoop(StrategyWrapper):
    """The outermost strategy: runs the rounds after the first `done` and calls the hooks after each.

    Flower counts every run from round 1. The strategies inside see the true number: Flower's round 1 is their
    round `done` + 1.
    """

    def __init__(
        self, inner: Strategy, model: NDArray[np.float32], *, done: int = 0, hooks: Sequence[RoundHook] = ()
    ) -> None:
        super().__init__(inner)
        self._done = done
        self.hooks = list(hooks)
        """Called in this order; a hook may join until the loop runs."""
        self.model = model
        """(dim,) the model that the server sends in the next round."""

    def run(self, grid: Grid, until: int) -> None:
        """Run the rounds that are left until `until` rounds are done; there may be none."""
        for hook in self.hooks:
            hook.on_start(self._done, self.model)
        self.start(grid, vector_record(self.model), num_rounds=max(0, until - self._done))

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
        """The messages that follow a round of training; `arrays` is the model after it."""
        self.model = parameters_of(arrays)
        return self.inner.configure_evaluate(self._done + server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Metrics from the replies to those messages; then the round is over."""
        done = self._done + server_round
        metrics = self.inner.aggregate_evaluate(done, replies)
        for hook in self.hooks:
            hook.after_round(done, self.model)
        return metrics

    def state(self) -> RecordDict:
        """What the strategies inside and the hooks remember."""
        return merged(super().state(), *(hook.state() for hook in self.hooks))

    def load_state(self, state: RecordDict) -> None:
        """Restore the strategies inside and the hooks."""
        super().load_state(state)
        for hook in self.hooks:
            hook.load_state(state)

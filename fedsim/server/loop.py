"""The loop over rounds: the one of Flower's `Strategy.start`, which can also start later than round 1.

It is spelled out here because a resumed run continues its count of rounds, and because hooks look at the
federation between two rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedsim.flower import parameters_of, vector_record
from fedsim.server.hooks import RoundHook
from fedsim.server.resuming import merged, resumable

_REPLY_LIMIT_S = 3600.0
"""How long the server waits for the replies of a round; Flower's own default."""


class RoundLoop:
    """Runs the rounds of a strategy after the first `done`, and calls the hooks between them."""

    def __init__(
        self,
        strategy: Strategy,
        model: NDArray[np.float32],
        *,
        done: int = 0,
        hooks: Sequence[RoundHook] = (),
    ) -> None:
        self._strategy = strategy
        self.model = model
        """(dim,) the model that the server sends in the next round."""
        self.done = done
        """The number of rounds that are over."""
        self.hooks = list(hooks)
        """Called in this order; a hook may join before the loop runs."""

    def run(self, grid: Grid, until: int) -> None:
        """Run the rounds that are left until `until` rounds are over; there may be none."""
        strategy, arrays = self._strategy, vector_record(self.model)
        for hook in self.hooks:
            hook.on_start(self.done, self.model)
        for number in range(self.done + 1, until + 1):
            log(INFO, "[ROUND %s/%s]", number, until)
            calls = strategy.configure_train(number, arrays, ConfigRecord(), grid)
            updates = grid.send_and_receive(calls, timeout=_REPLY_LIMIT_S)
            following, _ = strategy.aggregate_train(number, updates)
            # As in Flower: a strategy that returns no model keeps the one that it has.
            arrays = arrays if following is None else following
            questions = strategy.configure_evaluate(number, arrays, ConfigRecord(), grid)
            answers = grid.send_and_receive(questions, timeout=_REPLY_LIMIT_S)
            strategy.aggregate_evaluate(number, answers)
            self.done, self.model = number, parameters_of(arrays)
            for hook in self.hooks:
                hook.after_round(self.done, self.model)

    def state(self) -> RecordDict:
        """What the strategy and the hooks remember; `NotResumableError` if the strategy does not say."""
        return merged(resumable(self._strategy).state(), *(hook.state() for hook in self.hooks))

    def load_state(self, state: RecordDict) -> None:
        """Restore the strategy and the hooks."""
        for part in (resumable(self._strategy), *self.hooks):
            part.load_state(state)

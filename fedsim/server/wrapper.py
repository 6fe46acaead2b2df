"""The one way in which strategies are extended here: a strategy wraps another one."""

from __future__ import annotations

from flwr.app import RecordDict
from flwr.serverapp.strategy import Strategy

from fedsim.server.passing import PassingStrategy
from fedsim.server.resuming import resumable


class StrategyWrapper(PassingStrategy):
    """Passes every call on to `inner`; a subclass overrides what it changes or wants to see.

    A wrapper keeps the contract of `Resumable` if the strategy inside does. A subclass that itself remembers
    something between two rounds extends `state` and `load_state`, with records under keys of its own.
    """

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner

    def state(self) -> RecordDict:
        """What the strategy inside remembers; `NotResumableError` if it does not say."""
        return resumable(self.inner).state()

    def load_state(self, state: RecordDict) -> None:
        """Restore the strategy inside."""
        resumable(self.inner).load_state(state)

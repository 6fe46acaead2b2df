"""What a server strategy remembers between two rounds.

A checkpoint holds this memory, so that a killed run continues as if nobody had killed it. Flower's strategies
have no way to hand it out. A strategy that wants to be resumed therefore has the two methods of `Resumable`;
a strategy without them runs as usual, but its run leaves no checkpoint and `--resume` refuses it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flwr.app import RecordDict
from flwr.serverapp.strategy import Strategy

from fedsim.core.errors import UserError


class NotResumableError(UserError):
    """A strategy does not say what it remembers between rounds."""


@runtime_checkable
class Resumable(Protocol):
    """A strategy whose memory can be saved and restored between two rounds.

    A new strategy with the same settings that loads the state makes the same models from the same sums as the
    strategy that handed the state out. `state` may be called before the first round and after any round.
    The model itself is not part of the state: Flower's loop passes it in. Nor is anything that a round sets
    before it reads it.
    """

    def state(self) -> RecordDict:
        """Everything that the strategy remembers between two rounds."""

    def load_state(self, state: RecordDict) -> None:
        """Restore what `state` returned; ignore records of other strategies."""


class Stateless:
    """Mixin for a strategy that remembers nothing between two rounds."""

    def state(self) -> RecordDict:
        """Nothing."""
        return RecordDict()

    def load_state(self, state: RecordDict) -> None:
        """Nothing to restore."""


def resumable(strategy: Strategy) -> Resumable:
    """The same strategy, known to keep the contract of `Resumable`; raises `NotResumableError`."""
    if not isinstance(strategy, Resumable):
        raise NotResumableError(
            f"the server strategy {type(strategy).__name__} does not say what it remembers between rounds: "
            "it needs the methods state() and load_state()"
        )
    return strategy


def merged(*states: RecordDict) -> RecordDict:
    """One record dictionary from several; a key that two of them use is a programming error."""
    together = RecordDict()
    for state in states:
        for key, record in state.items():
            if key in together:
                raise ValueError(f"two parts of a federation store their state under {key!r}")
            together[key] = record
    return together

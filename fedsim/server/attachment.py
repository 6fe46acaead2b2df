"""Attachments: objects around anybody's strategy that leave its calls, attributes and results as they are.

A wrapper around a strategy (`fedsim.server.wrapper`) sees only the calls that somebody makes on the wrapper.
A strategy's own `start()` calls `self.aggregate_train`, and never reaches it. So an attachment puts itself in
front of the methods of the strategy object itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedsim.core.errors import UserError
from fedsim.server.passing import PassingStrategy


class Configure(Protocol):
    """A method that makes the messages of a round."""

    def __call__(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages."""


class Aggregate(Protocol):
    """A method that makes the next model, and metrics, from the replies of a round."""

    def __call__(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model and the metrics."""


class SummedReply(Message):
    """The one reply that stands for a cohort: `members` (node ids) with their total weight."""

    members: tuple[int, ...]
    weight: float


class Summed(NamedTuple):
    """What the replies are that strategies inside an attachment get: sums with these weights."""

    weighted_by: str | None


class Attachment(PassingStrategy):
    """The strategy inside, with its own calls, attributes and results, a `start()` of its own included.

    A subclass lists its own attributes in `_own` and sets them with `object.__setattr__`; all others are the
    strategy's. Attachments nest: the outer one is the first to see a reply.
    """

    _own: ClassVar[frozenset[str]] = frozenset({"inner"})
    _hides_replies: ClassVar[bool] = False
    """Whether the strategy inside gets sums instead of replies. An attachment around it sees neither."""

    def __init__(self, strategy: Strategy) -> None:
        if isinstance(strategy, type) or not hasattr(strategy, "configure_train"):
            raise UserError(
                f"{type(self).__name__}({strategy!r:.40}): expected a strategy of Flower, such as FedAvg()"
            )
        object.__setattr__(self, "inner", strategy)

    def _expect_sums(self, summed: Summed) -> None:
        """Called if an attachment outside hands over sums; a `UserError` if this one needs the replies."""

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`."""
        return self.inner.start(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in self._own:  # not set yet, for example while an object is copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.inner, name)


def attachments(strategy: Strategy) -> list[Attachment]:
    """The attachments of a strategy, from the outside in."""
    found = []
    while isinstance(strategy, Attachment):
        found.append(strategy)
        strategy = strategy.inner
    return found


def innermost(strategy: Strategy) -> Strategy:
    """The strategy without any attachment."""
    found = attachments(strategy)
    return found[-1].inner if found else strategy


def replace_method(strategy: Strategy, name: str, method: object) -> None:
    """Put a function in the place of a method, on this object only."""
    object.__setattr__(strategy, name, method)


def listed(messages: Iterable[Message]) -> list[Message]:
    """A list that can be read twice; the same object if it is one already."""
    return messages if isinstance(messages, list) else list(messages)

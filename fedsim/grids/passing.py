"""A grid around another one."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run


class PassingGrid(Grid):
    """Passes every call on to the grid `inner`; a subclass changes the calls that it is about."""

    def __init__(self, inner: Grid) -> None:
        self._inner = inner

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Passed on."""
        return self._inner.send_and_receive(messages, timeout=timeout)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Passed on."""
        return self._inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Passed on."""
        return self._inner.pull_messages(message_ids)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Passed on."""
        return self._inner.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Passed on."""
        return self._inner.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Passed on."""
        return self._inner.get_nodes()

    def set_run(self, run: Run) -> None:
        """Passed on."""
        self._inner.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the grid inside."""
        return self._inner.run

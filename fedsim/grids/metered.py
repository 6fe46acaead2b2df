"""Counts the bytes that pass between the server and its devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedsim.grids.passing import PassingGrid

_NUMBER_BYTES = 8


@dataclass
class Traffic:
    """Bytes so far, from the server to devices and back."""

    sent: int = 0
    received: int = 0


class MeteredGrid(PassingGrid):
    """Passes every call on to `inner`, and adds the payload of the messages to `traffic`.

    The payload is the content: arrays, numbers and texts. Names, envelopes and encryption of a transport are
    not part of it, so all engines give the same count. Messages of the `uncounted` types and their replies
    are left out: a server that starts again sends them again.
    """

    def __init__(self, inner: Grid, traffic: Traffic, uncounted: Collection[str] = ()) -> None:
        super().__init__(inner)
        self._traffic, self._uncounted = traffic, uncounted

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Count the messages and their replies."""
        return self._received(super().send_and_receive(self._sent(messages), timeout=timeout))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Count the messages."""
        return super().push_messages(self._sent(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Count the replies."""
        return self._received(super().pull_messages(message_ids))

    def _sent(self, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        self._traffic.sent += sum(map(self._counted, messages))
        return messages

    def _received(self, replies: Iterable[Message]) -> list[Message]:
        replies = list(replies)
        self._traffic.received += sum(map(self._counted, replies))
        return replies

    def _counted(self, message: Message) -> int:
        return 0 if message.metadata.message_type in self._uncounted else payload_bytes(message)


def payload_bytes(message: Message) -> int:
    """The size of a message's content; nothing for an error."""
    if not message.has_content():
        return 0
    return sum(
        _array_bytes(record) if isinstance(record, ArrayRecord) else sum(map(_bytes, record.values()))
        for record in message.content.values()
    )


def _array_bytes(record: ArrayRecord) -> int:
    # Not `len(array.data)`: that would serialise arrays which never leave the process.
    return sum(np.dtype(array.dtype).itemsize * math.prod(array.shape) for array in record.values())


def _bytes(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_bytes, value)) if isinstance(value, list) else _NUMBER_BYTES

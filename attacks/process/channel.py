"""Messages over a local socket: bytes with a kind, and files that are handed over open.

Requests are pickled, because the side that asks is trusted. Replies are plain arrays and JSON, so that
reading one cannot run code where the truth is.
"""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct("!BQI")
_MOST_FILES = 4


class Kind(IntEnum):
    """What a message is."""

    REQUEST = 0
    PROGRESS = 1
    REPLY = 2
    MISTAKE = 3
    """The request cannot be answered; the message says why."""
    FAULT = 4
    """Answering failed; the message is a traceback."""


@dataclass(frozen=True, eq=False)
class Message:
    """One message; `files` are descriptors that the receiver owns."""

    kind: Kind
    payload: bytes
    files: tuple[int, ...] = ()


class Channel:
    """One end of a socket that carries whole messages."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: Kind, payload: bytes, files: Sequence[int] = ()) -> None:
        """Send one message; the files stay open here."""
        socket.send_fds(self._end, [_HEADER.pack(kind, len(payload), len(files))], list(files))
        self._end.sendall(payload)

    def receive(self) -> Message | None:
        """The next message; None once the other end is closed."""
        try:
            header, files, _, _ = socket.recv_fds(self._end, _HEADER.size, _MOST_FILES, socket.MSG_WAITALL)
            if len(header) < _HEADER.size:
                return None
            kind, size, _ = _HEADER.unpack(header)
            payload = bytearray(size)
            rest = memoryview(payload)
            while rest:
                received = self._end.recv_into(rest)
                if received == 0:
                    return None
                rest = rest[received:]
        except ConnectionError:
            return None
        return Message(Kind(kind), bytes(payload), tuple(files))

    def close(self) -> None:
        """Close this end; the other end receives None."""
        self._end.close()


def packed(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> bytes:
    """Named arrays and JSON values as bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays, _values=np.array(json.dumps(values)))
    return buffer.getvalue()


def unpacked(payload: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What `packed` put in; refuses anything that would need pickle."""
    with np.load(io.BytesIO(payload), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    values: dict[str, Any] = json.loads(str(arrays.pop("_values")))
    return arrays, values

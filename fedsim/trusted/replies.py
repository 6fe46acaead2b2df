"""The replies of devices: those that arrived, expected dropouts, and faults that end a run."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Message

from fedsim.core.errors import UserError

DEVICE_FAILED = 1001
"""Error code of a device that drops out: the scenario asks for it. Flower's own codes are small."""

UNSENDABLE = 1002
"""Error code of an update that the scenario's settings cannot carry: the user's mistake."""


class ClientFailedError(RuntimeError):
    """A client answered with an error that no setting of the scenario explains."""


def delivered(replies: Iterable[Message]) -> dict[int, Message]:
    """Node id → reply, for the nodes that delivered; dropouts are left out, other errors raise."""
    by_node = {}
    for reply in replies:
        if not reply.has_error():
            by_node[reply.metadata.src_node_id] = reply
        elif reply.error.code == UNSENDABLE:
            raise UserError(reply.error.reason)
        elif reply.error.code != DEVICE_FAILED:
            raise ClientFailedError(f"node {reply.metadata.src_node_id}: {reply.error.reason}")
    return by_node

"""A mailbox for every node of Flower's simulation.

Flower's runtime asks for the messages of one node after another, all the time. For each node it looks through
all messages that are under way. With thousands of nodes that takes minutes for every round.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid


def with_mailboxes(grid: Grid) -> Grid:
    """The same grid of a simulation, whose runtime finds the messages of a node without a search.

    Any other grid is returned as it is.
    """
    from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
    from flwr.supercore.date import now

    state = getattr(grid, "state", None)
    if not isinstance(state, InMemoryLinkState):
        return grid
    store = state.store_message_ins
    boxes: defaultdict[int, deque[str]] = defaultdict(deque)

    def store_message_ins(message: Message) -> str | None:
        message_id = store(message)
        if message_id is not None:
            boxes[message.metadata.dst_node_id].append(message_id)
        return message_id

    def get_message_ins(node_id: int, limit: int | None, *, run_id: int | None = None) -> list[Message]:
        box = boxes.get(node_id)
        found: list[Message] = []
        while box and (limit is None or len(found) < limit):
            with state.lock:
                message = state.message_ins_store.get(box.popleft())
            # A message whose time is over has been removed.
            if message is not None:
                message.metadata.delivered_at = now().isoformat()
                found.append(message)
        return found

    state.store_message_ins = store_message_ins  # type: ignore[method-assign]
    state.get_message_ins = get_message_ins  # type: ignore[method-assign]
    return grid

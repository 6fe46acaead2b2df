"""The grid of the inline engine: Flower messages inside one process. No Ray, no polling, no serialisation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Literal
from uuid import uuid4

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from numpy.typing import NDArray

from fedsim.flower import client_number, record_vector, round_number
from fedsim.grids.memory import DeviceMemory
from fedsim.trusted.diary import settle

_FIRST_NODE_ID = 1000

Prepare = Callable[[Sequence[int], int, NDArray[np.float32]], None]
"""Gets the clients, the round (counted from 0) and the model (dim,) that they are sent."""


class InlineGrid(Grid, DeviceMemory):
    """Delivers a copy of a message by calling the `ClientApp` with the context of the receiving node.

    Node contexts live as long as the grid, so devices keep their state between rounds. An exception in a
    client does not become a reply: it ends the run, because in this process it can only be a fault. With
    `faults="reply"` it becomes an error reply, as on Flower's own runtimes.

    `prepare` gets the clients, the round and the model of the calls for training before any of them is
    delivered, so that it can train the whole cohort at once; devices still answer one by one. It may reuse
    the memory of the updates in the next round. Therefore the grid settles the diaries before it calls
    `prepare` again, and a caller must send the calls of a round together and must not keep their replies for
    longer than the round. `run_config` is what apps find in their context.
    """

    def __init__(
        self,
        client_app: ClientApp,
        clients: int,
        prepare: Prepare | None = None,
        *,
        run_config: Mapping[str, bool | float | int | str] | None = None,
        faults: Literal["raise", "reply"] = "raise",
    ) -> None:
        self._client_app, self._prepare, self._faults = client_app, prepare, faults
        self._contexts = {
            _FIRST_NODE_ID + client: Context(
                run_id=1,
                node_id=_FIRST_NODE_ID + client,
                node_config={"partition-id": client, "num-partitions": clients},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for client in range(clients)
        }
        self._waiting: dict[str, Message] = {}
        self._unsettled: list[int] = []

    @property
    def states(self) -> dict[int, RecordDict]:
        """What every device remembers between two rounds, by node id."""
        self._settle()
        return {node: context.state for node, context in self._contexts.items()}

    def restore(self, states: Mapping[int, RecordDict]) -> None:
        """Give devices the states that `states` returned in another process."""
        for node, state in states.items():
            self._contexts[node].state = state

    def get_node_ids(self) -> Iterable[int]:
        """All devices, always online."""
        return list(self._contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """The replies, in the order of the messages; nothing waits here, so `timeout` has no effect."""
        return [self._deliver(message) for message in self._announced(messages)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver at once and keep the replies until they are pulled."""
        replies = {uuid4().hex: self._deliver(message) for message in self._announced(messages)}
        self._waiting.update(replies)
        return list(replies)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Hand out the replies to pushed messages, each once."""
        return [self._waiting.pop(message_id) for message_id in message_ids if message_id in self._waiting]

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message from the server to a node."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def set_run(self, run: Run) -> None:
        """One grid serves one run; there is nothing to set."""

    @property
    def run(self) -> Run:
        """An empty record: no SuperLink has registered this run."""
        return Run.create_empty(run_id=1)

    def _announced(self, messages: Iterable[Message]) -> list[Message]:
        """The same messages, after `prepare` was told about the calls for training among them."""
        messages = list(messages)
        calls = [message for message in messages if message.metadata.message_type == "train"]
        if calls and self._prepare is not None:
            self._settle()
            self._unsettled = [call.metadata.dst_node_id for call in calls]
            clients = [client_number(self._contexts[node]) for node in self._unsettled]
            self._prepare(clients, round_number(calls[0]) - 1, record_vector(calls[0]))
        return messages

    def _settle(self) -> None:
        """The last round is over: nobody can strike its updates out of the diaries any more."""
        for node in self._unsettled:
            settle(self._contexts[node])
        self._unsettled = []

    def _deliver(self, message: Message) -> Message:
        try:
            return self._client_app(_own_copy(message), self._contexts[message.metadata.dst_node_id])
        except Exception as error:
            if self._faults == "raise":
                raise
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def _own_copy(message: Message) -> Message:
    """The message with records of its own: strategies send one record to all nodes, and apps change records.

    The arrays themselves are shared, because their bytes do not change.
    """
    records = RecordDict()
    for key, record in message.content.items():
        # Flower checks the values of a record when they are set; these have been.
        records[key] = record.copy()
    copied: Message = Message(content=records, metadata=copy(message.metadata))  # type: ignore[call-overload]
    return copied

"""Trusted aggregation: the wall between single updates and everything the server can see.

A Flower server knows which node sent which reply, so secure aggregation's promise has to be built.
`TrustedAggregation` invites the cohort from a schedule, collects the replies, and hands the strategy
inside exactly one reply: the sum, with its total weight and the size of the cohort. The strategy inside
talks to a grid with a single node, which stands for the whole cohort. It cannot see a single update, or
who was invited, because nothing hands it over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run
from numpy.typing import NDArray

from fedsim.client import IDENTIFY
from fedsim.flower import COHORT_SIZE, WEIGHT, record_vector, vector_record
from fedsim.summation import Aggregation
from fedsim.truth import TruthRecorder
from fedsim.wrapper import StrategyWrapper

_COHORT_NODE = 1
_CONNECT_LIMIT_S = 300
_POLL_S = 0.1


class TrustedAggregation(StrategyWrapper):
    """The outermost part of training: knows the clients, and lets only sums through.

    `schedule` (rounds, clients) says who is invited. Sums do not depend on the order of replies. A round
    without a cohort gives a zero sum of cohort size 0.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        schedule: NDArray[np.bool_],
        aggregation: Aggregation,
        truth: TruthRecorder,
    ) -> None:
        super().__init__(inner)
        self._schedule = schedule
        self._aggregation = aggregation
        self._truth = truth
        self._fleet: dict[int, int] = {}
        self._instruction: Message | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send what the inner strategy says to its one node to every member of the cohort."""
        self._fleet = self._fleet or discover(grid, clients=self._schedule.shape[1])
        (instruction,) = self.inner.configure_train(server_round, arrays, config, _CohortGrid())
        self._instruction = instruction
        node_of = {client: node for node, client in self._fleet.items()}
        return [
            Message(instruction.content, node_of[client], instruction.metadata.message_type)
            for client in np.flatnonzero(self._schedule[server_round - 1]).tolist()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Collapse the cohort's replies into one and pass that on."""
        assert self._instruction is not None, "a round is configured before it is aggregated"
        by_client = {self._fleet[reply.metadata.src_node_id]: _checked(reply) for reply in replies}
        updates = {client: record_vector(by_client[client]) for client in sorted(by_client)}
        self._truth.record(server_round - 1, updates.keys())
        if updates:
            total = self._aggregation.sum(list(updates.values()))
        else:
            total = np.zeros_like(record_vector(self._instruction))
        weight = sum(_weight(reply) for reply in by_client.values())
        metrics = MetricRecord({WEIGHT: weight, COHORT_SIZE: len(updates)})
        content = RecordDict({"arrays": vector_record(total), "metrics": metrics})
        return self.inner.aggregate_train(server_round, [Message(content, reply_to=self._instruction)])

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: clients are not asked to evaluate, and the inner strategy gets no other channel."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing was asked."""
        return None


def discover(grid: Grid, *, clients: int) -> dict[int, int]:
    """Ask every node which client it is; node id → client, for exactly the clients 0..clients-1."""
    question = [Message(RecordDict(), node, IDENTIFY) for node in _connected(grid, clients)]
    fleet = {
        reply.metadata.src_node_id: int(_checked(reply).content.metric_records["identity"]["client"])  # type: ignore[arg-type]
        for reply in grid.send_and_receive(question)
    }
    if sorted(fleet.values()) != list(range(clients)):
        raise RuntimeError(
            f"expected nodes for clients 0..{clients - 1}, got clients {sorted(fleet.values())}"
        )
    return fleet


def _connected(grid: Grid, clients: int) -> list[int]:
    """The nodes, once there are enough of them: engines other than inline connect them one by one."""
    for _ in range(int(_CONNECT_LIMIT_S / _POLL_S)):
        nodes = sorted(grid.get_node_ids())
        if len(nodes) >= clients:
            return nodes
        time.sleep(_POLL_S)
    raise RuntimeError(f"after {_CONNECT_LIMIT_S} s {len(nodes)} of {clients} nodes are connected")


class ClientFailedError(RuntimeError):
    """A client answered with an error instead of an update."""


def _checked(reply: Message) -> Message:
    if reply.has_error():
        raise ClientFailedError(f"node {reply.metadata.src_node_id}: {reply.error.reason}")
    return reply


def _weight(reply: Message) -> float:
    return float(reply.content.metric_records["metrics"][WEIGHT])  # type: ignore[arg-type]


class _CohortGrid(Grid):
    """The grid that the inner strategy gets to see: one node, which cannot be talked to directly."""

    def get_node_ids(self) -> Iterable[int]:
        return [_COHORT_NODE]

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PermissionError("behind trusted aggregation a strategy cannot reach single clients")

    @property
    def run(self) -> Run:
        self._refuse()

    set_run = create_message = push_messages = pull_messages = send_and_receive = _refuse

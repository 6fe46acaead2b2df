"""Trusted aggregation: the wall between single updates and everything the server can see.

A Flower server knows which node sent which reply, so secure aggregation's promise has to be built.
`TrustedAggregation` invites the cohort from a schedule, collects the replies, and hands the strategy
inside exactly one reply: the sum, with its total weight and the size of the cohort. The strategy inside
talks to a grid with a single node, which stands for the whole cohort. It cannot see a single update, or
who was invited, because nothing hands it over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run
from numpy.typing import NDArray

from fedsim.core.seeds import Stage, stream
from fedsim.defences.defence import Defence
from fedsim.devices.client import IDENTIFY
from fedsim.flower import COHORT_SIZE, WEIGHT, vector_record
from fedsim.server.resuming import merged
from fedsim.server.wrapper import StrategyWrapper
from fedsim.trusted.diary import strike_out
from fedsim.trusted.replies import delivered
from fedsim.trusted.rounds import Invitation, RoundSum, SummingRound
from fedsim.trusted.summation import Aggregation
from fedsim.trusted.truth import TruthRecorder

_COHORT_NODE = 1
_CONNECT_LIMIT_S = 60
_POLL_S = 0.1


class TrustedAggregation(StrategyWrapper):
    """The outermost part of training: knows the clients, and lets only sums through.

    `schedule` (rounds, clients) says who is invited. Sums do not depend on the order of replies, and hold
    the updates of those who delivered. A round in which nobody did gives a zero sum of cohort size 0; so
    does a void round, whose updates could not be summed, and its weight is NaN. `defences` change a sum
    here, before the strategy inside sees it.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        schedule: NDArray[np.bool_],
        aggregation: Aggregation,
        truth: TruthRecorder,
        defences: Sequence[Defence] = (),
        seed: int = 0,
    ) -> None:
        super().__init__(inner)
        self._schedule = schedule
        self._aggregation = aggregation
        self._truth = truth
        self._defences, self._seed = defences, seed
        self._fleet: dict[int, int] = {}
        self._invitation: Invitation | None = None
        self._round: SummingRound | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send what the inner strategy says to its one node to every member of the cohort."""
        self._fleet = self._fleet or discover(grid, clients=self._schedule.shape[1])
        (instruction,) = self.inner.configure_train(server_round, arrays, config, CohortGrid())
        node_of = {client: node for node, client in self._fleet.items()}
        cohort = np.flatnonzero(self._schedule[server_round - 1]).tolist()
        nodes = tuple(node_of[client] for client in cohort)
        self._invitation = Invitation(grid, server_round, instruction, nodes)
        self._round = self._aggregation.open_round(self._invitation)
        return self._round.messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Collapse the cohort's replies into one and pass that on."""
        assert self._round is not None, "a round is configured before it is aggregated"
        assert self._invitation is not None
        summed = self._round.close(replies)
        self._truth.record(server_round - 1, (self._fleet[node] for node in summed.members))
        if missing := set(self._invitation.nodes) - set(summed.members):
            strike_out(self._invitation.grid, server_round, sorted(missing))
        reply = cohort_reply(
            self._invitation.instruction,
            self._defended(summed, server_round),
            weight=summed.weight,
            cohort_size=len(summed.members),
        )
        return self.inner.aggregate_train(server_round, [reply])

    def _defended(self, summed: RoundSum, server_round: int) -> NDArray[np.float32]:
        """The sum as it leaves the trusted part; a void round has none to defend."""
        total = summed.total
        if np.isnan(summed.weight):
            return total
        for place, defence in enumerate(self._defences):
            total = defence.on_sum(total, stream(self._seed, Stage.DEFENCE, place, server_round - 1))
        return total

    def state(self) -> RecordDict:
        """Also who took part so far. The fleet is not part of it: nodes are asked again who they are."""
        return merged(super().state(), self._truth.state())

    def load_state(self, state: RecordDict) -> None:
        """Restore who took part so far, and the strategy inside."""
        super().load_state(state)
        self._truth.load_state(state)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: clients are not asked to evaluate, and the inner strategy gets no other channel."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing was asked."""
        return None


def cohort_reply(
    instruction: Message, total: NDArray[np.float32], *, weight: float, cohort_size: int
) -> Message:
    """The one reply that the strategy inside gets: a sum, its weight and how many updates it holds."""
    metrics = MetricRecord({WEIGHT: weight, COHORT_SIZE: cohort_size})
    return Message(RecordDict({"arrays": vector_record(total), "metrics": metrics}), reply_to=instruction)


def discover(grid: Grid, *, clients: int) -> dict[int, int]:
    """Ask every node which client it is; node id → client, for exactly the clients 0..clients-1."""
    question = [Message(RecordDict(), node, IDENTIFY) for node in _connected(grid, clients)]
    fleet = {
        node: int(reply.content.metric_records["identity"]["client"])  # type: ignore[arg-type]
        for node, reply in delivered(grid.send_and_receive(question)).items()
    }
    if sorted(fleet.values()) != list(range(clients)):
        raise RuntimeError(
            f"expected nodes for clients 0..{clients - 1}, got clients {sorted(fleet.values())}"
        )
    return fleet


def _connected(grid: Grid, clients: int) -> list[int]:
    """The nodes, once there are enough of them: engines other than inline connect them one by one."""
    most, latest = 0, time.monotonic()
    while len(nodes := sorted(grid.get_node_ids())) < clients:
        if len(nodes) > most:
            most, latest = len(nodes), time.monotonic()
        if time.monotonic() - latest > _CONNECT_LIMIT_S:
            raise RuntimeError(
                f"{len(nodes)} nodes are connected, no more for {_CONNECT_LIMIT_S} s; {clients} clients need "
                f"a node each (in Flower's simulation: --federation-config num-supernodes={clients})"
            )
        time.sleep(_POLL_S)
    return nodes


class CohortGrid(Grid):
    """The grid that the inner strategy gets to see: one node, which cannot be talked to directly."""

    def get_node_ids(self) -> Iterable[int]:
        """The node that stands for the cohort."""
        return [_COHORT_NODE]

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PermissionError("behind trusted aggregation a strategy cannot reach single clients")

    @property
    def run(self) -> Run:
        """Refused."""
        self._refuse()

    set_run = create_message = push_messages = pull_messages = send_and_receive = _refuse

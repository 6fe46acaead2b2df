"""Trusted aggregation: the wall between single updates and everything the server can see.

A Flower server knows which node sent which reply, so secure aggregation's promise has to be built.
`TrustedAggregation` invites the cohort from a schedule, collects the replies, and hands the strategy inside
exactly one reply: the sum, with its total weight and the size of the cohort. The strategy inside talks to a
grid with a single node, which stands for the whole cohort. It can see neither a single update nor the list of
invited clients, because nothing hands them over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedsim.core.seeds import Stage, stream
from fedsim.defences.defence import Defence
from fedsim.server.resuming import merged
from fedsim.server.wrapper import StrategyWrapper
from fedsim.trusted.cohort import CohortGrid, cohort_reply
from fedsim.trusted.diary import strike_out
from fedsim.trusted.fleet import discover
from fedsim.trusted.rounds import Invitation, RoundSum, Summation, SummationSettings, SummingRound
from fedsim.trusted.truth import TruthRecorder


class TrustedAggregation(StrategyWrapper):
    """Knows the clients and lets only sums through.

    `schedule` (rounds, clients) is True where a client is invited. A sum holds the updates that arrived and
    does not depend on their order. A round without any gives a zero sum of cohort size 0. So does a void
    round, whose updates could not be summed; its weight is NaN. `defences` change a sum here, before the
    strategy inside sees it.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        schedule: NDArray[np.bool_],
        aggregation: SummationSettings,
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
        self._summation: Summation | None = None
        self._invitation: Invitation | None = None
        self._round: SummingRound | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the inner strategy's message to its one node to every member of the cohort instead."""
        if self._summation is None:
            self._fleet = discover(grid, clients=self._schedule.shape[1])
            self._summation = self._aggregation.enrol(grid, sorted(self._fleet, key=self._fleet.__getitem__))
        (instruction,) = self.inner.configure_train(server_round, arrays, config, CohortGrid())
        node_of = {client: node for node, client in self._fleet.items()}
        cohort = np.flatnonzero(self._schedule[server_round - 1]).tolist()
        nodes = tuple(node_of[client] for client in cohort)
        self._invitation = Invitation(grid, server_round, instruction, nodes)
        self._round = self._summation.open_round(self._invitation)
        return self._round.messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Sum the cohort's replies and pass the sum on as one reply."""
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
        """The sum as it leaves the trusted part; a void round has no sum to defend."""
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

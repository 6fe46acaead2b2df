"""The operator's side of telemetry: asks the devices for their counters and collects the answers."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from analytics.counters import COUNT
from analytics.report import ParticipationReport
from fedsim.wrapper import StrategyWrapper


class CountCollector(StrategyWrapper):
    """Queries every device at the end of each window, and at the end of the run.

    It stands beside training, not inside: it sees counters and never an update.
    """

    def __init__(self, inner: Strategy, *, window: int, rounds: int) -> None:
        super().__init__(inner)
        self._window = window
        self._rounds = rounds
        self.answers: list[tuple[int, int, int, int]] = []
        """Client, first round, round after the last, count: everything collected so far."""

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask, when a window has just ended."""
        if server_round % self._window and server_round != self._rounds:
            return []
        return [Message(RecordDict(), node, COUNT) for node in grid.get_node_ids()]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Note the answers: each counts the rounds since the window before."""
        start = (server_round - 1) // self._window * self._window
        for reply in replies:
            answer = reply.content.metric_records["answer"]
            self.answers.append((int(answer["client"]), start, server_round, int(answer["count"])))  # type: ignore[arg-type]
        return None

    def report(self) -> ParticipationReport:
        """Everything collected so far, by client and then by time."""
        return ParticipationReport.from_rows(sorted(self.answers))

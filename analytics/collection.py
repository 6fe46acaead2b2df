"""The operator's side of telemetry: ask the devices for their counters, and collect the answers."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from analytics.counters import enrolment, question
from analytics.questions import Questions
from analytics.report import ParticipationReport
from fedsim.flower import metrics_in
from fedsim.server.resuming import merged
from fedsim.server.wrapper import StrategyWrapper

_ANSWERS = "answers"


class CountCollector(StrategyWrapper):
    """Asks the devices according to the plan, and records their answers.

    It is separate from training: it sees counters and never an update.
    """

    def __init__(self, inner: Strategy, questions: Questions) -> None:
        super().__init__(inner)
        self._questions = questions
        self._node_of: dict[int, int] = {}
        self.answers: list[tuple[int, int, int, int | None]] = []
        """All answers so far: client, first round, round after the last, count (None if lost)."""

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the devices that are due after this round."""
        due = np.flatnonzero(self._questions.asked[server_round - 1]).tolist()
        if not due:
            return []
        self._node_of = self._node_of or _enrolled(grid)
        return [question(self._node_of[client], server_round) for client in due]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Record the answers; an answer lost on the way is a window without a count."""
        cumulative = self._questions.cumulative
        for reply in replies:
            answer = metrics_in(reply.content, "answer")
            client, since, count, total = (int(answer[key]) for key in ("client", "since", "count", "total"))  # type: ignore[arg-type]
            start, counted = (0, total) if cumulative else (since, count)
            heard = self._questions.heard[server_round - 1, client]
            self.answers.append((client, start, server_round, counted if heard else None))
        return None

    def state(self) -> RecordDict:
        """Also the answers so far, in rows of four numbers; NaN for a count that was lost."""
        rows = np.array(self.answers, dtype=np.float64).reshape(-1, 4)
        return merged(super().state(), RecordDict({_ANSWERS: ArrayRecord({_ANSWERS: Array(rows)})}))

    def load_state(self, state: RecordDict) -> None:
        """Restore the answers, and the strategy inside."""
        super().load_state(state)
        rows = state.array_records[_ANSWERS][_ANSWERS].numpy().tolist()
        self.answers = [
            (int(client), int(start), int(stop), None if math.isnan(count) else int(count))
            for client, start, stop, count in rows
        ]

    def report(self) -> ParticipationReport:
        """All answers so far, ordered by client and then by time."""
        return ParticipationReport.from_rows(sorted(self.answers, key=lambda answer: answer[:3]))


def _enrolled(grid: Grid) -> dict[int, int]:
    """Client number → node id of every device."""
    replies = grid.send_and_receive([enrolment(node) for node in grid.get_node_ids()])
    return {
        int(reply.content.metric_records["answer"]["client"]): reply.metadata.src_node_id  # type: ignore[arg-type]
        for reply in replies
    }

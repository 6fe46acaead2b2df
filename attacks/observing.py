"""The tap: a strategy that records what the server receives."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from fedsim.flower import COHORT_SIZE, WEIGHT, record_vector
from fedsim.records import TranscriptWriter
from fedsim.server.wrapper import StrategyWrapper


class ObservingStrategy(StrategyWrapper):
    """Wraps the server's own strategy and records every aggregate that reaches it, unchanged.

    It is inside trusted aggregation, so there is one reply per round: an aggregate, its weight and its cohort
    size.
    """

    def __init__(self, inner: Strategy, transcript: TranscriptWriter) -> None:
        super().__init__(inner)
        self._transcript = transcript

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Record the aggregate and pass it on."""
        (reply,) = replies
        metrics = reply.content.metric_records["metrics"]
        self._transcript.append(
            record_vector(reply),
            cohort_size=int(metrics[COHORT_SIZE]),  # type: ignore[arg-type]
            weight=float(metrics[WEIGHT]),  # type: ignore[arg-type]
        )
        return self.inner.aggregate_train(server_round, [reply])

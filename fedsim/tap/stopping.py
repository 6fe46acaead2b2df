"""Ending a training before its last round, with the results so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result


class TrainingStoppedError(Exception):
    """Leaves the strategy's `start()` before a round; `Tap.start` catches it."""


@dataclass
class SoFar:
    """Collects what Flower's own `start()` would have returned."""

    result: Result = field(default_factory=Result)

    def trained(self, server_round: int, arrays: ArrayRecord | None, metrics: MetricRecord | None) -> None:
        """A round of training is over."""
        if arrays is not None:
            self.result.arrays = arrays
        if metrics is not None:
            self.result.train_metrics_clientapp[server_round] = metrics

    def evaluated(self, server_round: int, metrics: MetricRecord | None) -> None:
        """A round of evaluation is over."""
        if metrics is not None:
            self.result.evaluate_metrics_clientapp[server_round] = metrics

    def with_evaluation(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Arguments of `start()` whose evaluation on the server is collected, too."""
        evaluate: Callable[..., MetricRecord | None] | None = settings.get("evaluate_fn")
        if evaluate is None:
            return settings

        @wraps(evaluate)
        def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate(server_round, arrays)
            if metrics is not None:
                self.result.evaluate_metrics_serverapp[server_round] = metrics
            return metrics

        return {**settings, "evaluate_fn": evaluate_fn}

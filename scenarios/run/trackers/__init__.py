"""Training curves for tools that people already use: TensorBoard, MLflow, Weights & Biases.

`history.csv` needs none of them. A tracker is one small class in one file. Its package is imported when it
starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from scenarios.run.directory import RunDirectory
from scenarios.run.history import Listener
from scenarios.run.scenario import Scenario
from scenarios.run.trackers.mlflow import MLflow
from scenarios.run.trackers.tensorboard import TensorBoard
from scenarios.run.trackers.tracker import Tracker
from scenarios.run.trackers.wandb import WeightsAndBiases

TRACKERS: dict[str, type[Tracker]] = {
    tracker.name: tracker for tracker in (TensorBoard, MLflow, WeightsAndBiases)
}
"""By the name that `--track` takes."""


@contextmanager
def tracked(names: Iterable[str], scenario: Scenario, directory: RunDirectory) -> Iterator[list[Listener]]:
    """Start these trackers; yield what has to hear of every point of the curves; end them after the block."""
    with ExitStack() as stack:
        started: list[Listener] = []
        for name in names:
            tracker = TRACKERS[name](scenario, directory)
            stack.callback(tracker.close)
            started.append(tracker.log)
        yield started

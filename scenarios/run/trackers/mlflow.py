"""Curves for MLflow, at the tracking server that its own settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import Scenario
from scenarios.run.trackers.tracker import Tracker


class MLflow(Tracker):
    """`MLFLOW_TRACKING_URI` says where; by default the folder `mlruns`."""

    name: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(self, scenario: Scenario, directory: RunDirectory) -> None:
        self._mlflow = self.load("mlflow")
        self._mlflow.start_run(run_name=directory.path.name)
        self._mlflow.log_text(scenario.to_toml(), "scenario.toml")

    def log(self, done: int, figures: Mapping[str, float]) -> None:
        """All figures of a point at once."""
        values = {name: float(value) for name, value in figures.items() if name != "round"}
        self._mlflow.log_metrics(values, step=done)

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()

"""Curves for TensorBoard, in the folder `tensorboard` of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import Scenario
from scenarios.run.trackers.tracker import Tracker


class TensorBoard(Tracker):
    """Look at it with `tensorboard --logdir runs`."""

    name: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    def __init__(self, scenario: Scenario, directory: RunDirectory) -> None:
        module = self.load("torch.utils.tensorboard")
        self._writer = module.SummaryWriter(str(directory.tensorboard))
        self._writer.add_text("scenario", f"```\n{scenario.to_toml()}\n```")

    def log(self, done: int, figures: Mapping[str, float]) -> None:
        """One scalar per figure."""
        for name, value in figures.items():
            if name != "round":
                self._writer.add_scalar(name, value, done)
        self._writer.flush()

    def close(self) -> None:
        """Close the file of events."""
        self._writer.close()

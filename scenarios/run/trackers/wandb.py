"""Curves for Weights & Biases."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import ClassVar

from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import Scenario
from scenarios.run.trackers.tracker import Tracker


class WeightsAndBiases(Tracker):
    """`WANDB_MODE=offline` keeps everything on this machine."""

    name: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"

    def __init__(self, scenario: Scenario, directory: RunDirectory) -> None:
        settings = tomllib.loads(scenario.to_toml())
        self._run = self.load("wandb").init(project="fedsim", name=directory.path.name, config=settings)

    def log(self, done: int, figures: Mapping[str, float]) -> None:
        """All figures of a point at once."""
        self._run.log({name: value for name, value in figures.items() if name != "round"}, step=done)

    def close(self) -> None:
        """End the run."""
        self._run.finish()

"""The contract of a tracker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import ClassVar

from fedsim.core.errors import UserError
from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import Scenario


class Tracker(ABC):
    """Hands the points of a training's curves to another tool. It changes nothing in the run."""

    name: ClassVar[str]
    """What `--track` takes."""
    package: ClassVar[str]
    """What has to be installed."""

    @abstractmethod
    def __init__(self, scenario: Scenario, directory: RunDirectory) -> None:
        """Start: tell the tool which run it is, and its settings."""

    @abstractmethod
    def log(self, done: int, figures: Mapping[str, float]) -> None:
        """A point of the curves, after `done` rounds."""

    @abstractmethod
    def close(self) -> None:
        """The training is over, or failed."""

    @classmethod
    def load(cls, module: str) -> ModuleType:
        """The tool's module; a `UserError` that names its package if it is not installed."""
        try:
            return import_module(module)
        except ImportError as error:
            raise UserError(
                f"--track {cls.name}: the package {cls.package} is not installed: pip install {cls.package}"
            ) from error

"""What an engine is: it starts the devices of a world and lets the server talk to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from fedsim.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.serverapp import Grid

    from fedsim.grids.memory import DeviceMemory
    from scenarios.run.world import World

Serve: TypeAlias = "Callable[[Grid, DeviceMemory | None], None]"
"""The server's side of a run, from its first round to its last. It gets the grid of the devices, and their
memory if the engine can resume, else None."""


class Runtime(ABC):
    """An engine with its settings."""

    name: ClassVar[str]
    """What the engine is called on the command line and in messages."""
    can_resume: ClassVar[bool] = False
    """Whether the engine hands out the memory of its devices, which checkpoints need."""

    @abstractmethod
    def run(self, serve: Serve, world: World) -> None:
        """Start the devices of a world, call `serve` once with their grid, and end them."""

    def check(self) -> None:  # noqa: B027 (most engines can start anywhere)
        """Raise if the engine cannot start here; called before anything is written."""

    @property
    def stops_at_divergence(self) -> bool:
        """Whether a training whose sums are no longer finite ends at once.

        Needs an engine through which an exception of the server reaches the caller unchanged.
        """
        return False

    def with_workers(self, workers: int) -> Runtime:
        """The same engine with this number of worker processes."""
        raise UserError(f"--workers: the {self.name} engine distributes the work itself")

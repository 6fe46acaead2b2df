"""The engine of a process that Flower has started as the server: its grid is already there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from scenarios.run.engines.runtime import Runtime, Serve

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from scenarios.run.world import World


@dataclass(frozen=True)
class GivenGrid(Runtime):
    """Flower's SuperNodes are the devices. Their memory is out of reach, so a run cannot be resumed."""

    grid: Grid

    name: ClassVar[str] = "flower"

    def run(self, serve: Serve, world: World) -> None:
        """Serve the nodes that are connected to the grid."""
        serve(self.grid, None)

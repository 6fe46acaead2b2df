"""The inline engine: everything on this machine, without Ray and without polling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from scenarios.run.engines.runtime import Runtime, Serve

if TYPE_CHECKING:
    from fedsim.trusted.spool import Spool
    from scenarios.run.world import World


@dataclass(frozen=True)
class Inline(Runtime):
    """Server and devices in this process; `workers` processes share the training, this one among them.

    Without `workers` there is one process per core. Runs that differ only in their local epochs may share a
    `spool` of updates.
    """

    workers: int | None = None
    spool: Spool | None = None

    name: ClassVar[str] = "inline"
    can_resume: ClassVar[bool] = True

    def run(self, serve: Serve, world: World) -> None:
        """Serve devices that live as long as the run."""
        from fedsim.devices.processes import cores
        from fedsim.flower import enter_local_task
        from fedsim.grids.inline import InlineGrid
        from scenarios.run.apps import client_app, trainer

        enter_local_task()
        with trainer(world, self.workers or cores(), self.spool) as training:
            clients = world.scenario.federation.clients
            grid = InlineGrid(client_app(world, training), clients, training.prepare)
            serve(grid, grid)

    @property
    def stops_at_divergence(self) -> bool:
        """Unless other runs wait for the shorter epochs of this training, which may still be finite."""
        return self.spool is None

    def with_workers(self, workers: int) -> Inline:
        """The same with this number of processes."""
        return replace(self, workers=workers)

"""Ways to run the apps of a scenario. Light to import: the command line lists them in its help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from fedsim.core.errors import UserError

if TYPE_CHECKING:
    from flwr.serverapp import ServerApp

    from fedsim.trusted.spool import Spool
    from scenarios.run.world import World


class Runtime(Protocol):
    """Something with the clients of a world on its other side, on which a `ServerApp` can run."""

    def run(self, server_app: ServerApp, world: World) -> None:
        """Run a federation to its end."""


class Engine(StrEnum):
    """Runtimes that are started here, for one run.

    The same seed gives the same schedule, counts and sums on every engine (sums up to rounding).
    """

    INLINE = "inline"
    """On this machine, without Ray and without polling; training is shared out over the cores."""
    RAY = "ray"
    """Flower's own simulation runtime."""

    def run(self, server_app: ServerApp, world: World) -> None:
        """Run a federation to its end."""
        match self:
            case Engine.INLINE:
                Inline().run(server_app, world)
            case Engine.RAY:
                from fedsim.engines.ray import run_ray
                from scenarios.run.apps import PortableClientApp

                app = PortableClientApp(world.scenario.to_toml())
                run_ray(server_app, app, clients=world.scenario.federation.clients)

    def with_workers(self, workers: int | None) -> Runtime:
        """The same with a number of worker processes, if one is given."""
        if workers is None:
            return self
        if self is not Engine.INLINE:
            raise UserError(f"--workers: the {self} engine has its own way of sharing out the work")
        return Inline(workers)


@dataclass(frozen=True)
class Inline:
    """The inline engine with that many processes that train, this one among them; None: one per core.

    Runs that differ in nothing but their local epochs may share a `spool`.
    """

    workers: int | None = None
    spool: Spool | None = None

    def run(self, server_app: ServerApp, world: World) -> None:
        """Run a federation to its end."""
        from fedsim.devices.processes import cores
        from fedsim.engines.inline import run_inline
        from scenarios.run.apps import client_app, trainer

        clients = world.scenario.federation.clients
        workers = cores() if self.workers is None else self.workers
        with trainer(world, workers, self.spool) as training:
            run_inline(server_app, client_app(world, training), clients=clients, prepare=training.prepare)

"""Ways to run the apps of a scenario. Light to import: the command line lists them in its help."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flwr.serverapp import ServerApp

    from scenarios.world import World


class Runtime(Protocol):
    """Something with the clients of a world on its other side, on which a `ServerApp` can run."""

    def run(self, server_app: ServerApp, world: World) -> None:
        """Run a federation to its end."""


class Engine(StrEnum):
    """Runtimes that are started here, for one run.

    The same seed gives the same schedule, counts and sums on every engine (sums up to rounding).
    """

    INLINE = "inline"
    """In this process, without Ray and without polling: the quickest on one machine."""
    RAY = "ray"
    """Flower's own simulation runtime."""

    def run(self, server_app: ServerApp, world: World) -> None:
        """Run a federation to its end."""
        from scenarios.apps import PortableClientApp, client_app

        clients = world.scenario.federation.clients
        match self:
            case Engine.INLINE:
                from fedsim.engines.inline import run_inline

                run_inline(server_app, client_app(world), clients=clients)
            case Engine.RAY:
                from fedsim.engines.ray import run_ray

                run_ray(server_app, PortableClientApp(world.scenario.to_toml()), clients=clients)

"""The ray engine: Flower's own simulation runtime, with the devices in Ray's worker processes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from scenarios.run.engines.runtime import Runtime, Serve

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from scenarios.run.world import World


@dataclass(frozen=True)
class Ray(Runtime):
    """One core per device. Devices keep their memory in other processes, so a run cannot be resumed."""

    name: ClassVar[str] = "ray"

    def run(self, serve: Serve, world: World) -> None:
        """Serve devices that Ray starts; a fault in one of them is raised here."""
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        from fedsim.flower import enter_local_task
        from scenarios.run.apps import PortableClientApp

        server_app = ServerApp()

        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            serve(grid, None)

        enter_local_task()
        with warnings.catch_warnings():
            # Flower recommends its command line instead of this function.
            warnings.simplefilter("ignore", DeprecationWarning)
            run_simulation(
                server_app=server_app,
                client_app=PortableClientApp(world.scenario.to_toml()),
                num_supernodes=world.scenario.federation.clients,
                backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
            )

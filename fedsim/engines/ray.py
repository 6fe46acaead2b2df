"""The ray engine: Flower's own simulation runtime, with clients in Ray's worker processes."""

from __future__ import annotations

import warnings

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from fedsim.flower import enter_local_task


def run_ray(server_app: ServerApp, client_app: ClientApp, *, clients: int) -> None:
    """Run a federation to its end on Ray, one core per client; a fault in it is raised here."""
    enter_local_task()
    with warnings.catch_warnings():
        # Flower would rather have everybody use its command line.
        warnings.simplefilter("ignore", DeprecationWarning)
        run_simulation(
            server_app=server_app,
            client_app=client_app,
            num_supernodes=clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )

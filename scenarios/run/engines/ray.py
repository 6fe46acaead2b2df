"""The ray engine: Flower's own simulation runtime, with the devices in Ray's worker processes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from scenarios.run.engines.runtime import Runtime, Serve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.app import Context, Message
    from flwr.serverapp import Grid

    from scenarios.run.world import World

_PART = 500
"""Messages that are under way at a time."""


@dataclass(frozen=True)
class Ray(Runtime):
    """One core per device. Devices keep their memory in other processes, so a run cannot be resumed."""

    name: ClassVar[str] = "ray"

    def check(self) -> None:
        """Somebody must answer if `RAY_ADDRESS` names a cluster, else Ray's sockets need short paths."""
        from fedsim.grids.ray_start import check_ray

        check_ray()

    def run(self, serve: Serve, world: World) -> None:
        """Serve devices that Ray starts; a fault in one of them is raised here."""
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        from fedsim.flower import enter_local_task
        from fedsim.grids.mailboxes import with_mailboxes
        from scenarios.run.apps import PortableClientApp

        server_app, interrupted = ServerApp(), threading.Event()

        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            serve(_in_parts(_ending_with(interrupted, with_mailboxes(grid))), None)

        enter_local_task()
        _start_ray()
        # Flower logs the tracebacks of other processes; the exception that is raised here says enough.
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            # Flower recommends its command line instead of this function.
            warnings.simplefilter("ignore", DeprecationWarning)
            # Ray announces changes of later versions.
            warnings.simplefilter("ignore", FutureWarning)
            try:
                run_simulation(
                    server_app=server_app,
                    client_app=PortableClientApp(world.scenario.to_toml()),
                    num_supernodes=world.scenario.federation.clients,
                    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
                )
            finally:
                interrupted.set()


def _start_ray() -> None:
    """Start Ray, or connect to the cluster that `RAY_ADDRESS` names; Flower takes a Ray that is there.

    Ray puts a handler of its own in the place of this process's, which aborts at SIGTERM.
    """
    from fedsim.grids.ray_start import start_ray

    # As important as the server: by default Ray's workers give way to every other process.
    os.environ.setdefault("RAY_worker_niceness", "0")
    handler = signal.getsignal(signal.SIGTERM)
    here = os.pathsep.join(filter(None, (*sys.path, os.environ.get("PYTHONPATH"))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about changes of later versions
        start_ray(runtime_env={"env_vars": {"PYTHONPATH": here}}, include_dashboard=False)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _ending_with(interrupted: threading.Event, grid: Grid) -> Grid:
    """The same grid, which ends the server's thread after Ctrl-C or SIGTERM.

    Flower interrupts the main thread only. The server's would wait for replies that never come.
    """
    pull = grid.pull_messages

    def pull_messages(message_ids: Iterable[str]) -> Iterable[Message]:
        if interrupted.is_set():
            raise SystemExit
        return pull(message_ids)

    grid.pull_messages = pull_messages  # type: ignore[method-assign]
    return grid


def _in_parts(grid: Grid) -> Grid:
    """The same grid, which sends many messages in parts: Flower asks again and again for every open reply.

    It raises a `ProcessLostError` once Ray has lost a process that a reply comes from. Flower reports such a
    loss as an error of the device, which no device could send.
    """
    from flwr.common.constant import ErrorCode

    from fedsim.core.errors import ProcessLostError

    deliver = grid.send_and_receive

    def send_and_receive(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages, replies = list(messages), []
        for begin in range(0, len(messages), _PART):
            for reply in deliver(messages[begin : begin + _PART], timeout=timeout):
                if reply.has_error() and reply.error.code == ErrorCode.UNKNOWN:
                    raise ProcessLostError("a worker process of Ray was killed (was memory short?)")
                replies.append(reply)
        return replies

    grid.send_and_receive = send_and_receive  # type: ignore[method-assign]
    return grid

"""The fleet: which node of a grid is which client."""

from __future__ import annotations

import time

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedsim.devices.client import IDENTIFY
from fedsim.trusted.replies import delivered

_CONNECT_LIMIT_S = 60
"""How long to wait for the next node to connect."""
_CONNECT_POLL_S = 0.1


def discover(grid: Grid, *, clients: int) -> dict[int, int]:
    """Ask every node which client it is; node id → client, for exactly the clients 0..clients-1."""
    question = [Message(RecordDict(), node, IDENTIFY) for node in _connected(grid, clients)]
    fleet = {
        node: int(reply.content.metric_records["identity"]["client"])  # type: ignore[arg-type]
        for node, reply in delivered(grid.send_and_receive(question)).items()
    }
    if sorted(fleet.values()) != list(range(clients)):
        raise RuntimeError(
            f"expected nodes for clients 0..{clients - 1}, got clients {sorted(fleet.values())}"
        )
    return fleet


def _connected(grid: Grid, clients: int) -> list[int]:
    """The nodes, once there are enough of them: most engines connect them one by one."""
    most, latest = 0, time.monotonic()
    while len(nodes := sorted(grid.get_node_ids())) < clients:
        if len(nodes) > most:
            most, latest = len(nodes), time.monotonic()
        if time.monotonic() - latest > _CONNECT_LIMIT_S:
            raise RuntimeError(
                f"{len(nodes)} nodes are connected, no more for {_CONNECT_LIMIT_S} s; {clients} clients need "
                f"a node each (in Flower's simulation: --federation-config num-supernodes={clients})"
            )
        time.sleep(_CONNECT_POLL_S)
    return nodes

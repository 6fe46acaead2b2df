"""The fleet: which node of a grid is which client."""

from __future__ import annotations

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedsim.core.errors import NotStartedError
from fedsim.devices.client import IDENTIFY
from fedsim.grids.nodes import CONNECT_LIMIT_S, connected
from fedsim.trusted.replies import delivered


def discover(grid: Grid, *, clients: int) -> dict[int, int]:
    """Ask every node which client it is; node id → client, for exactly the clients 0..clients-1.

    A `NotStartedError` if a client has no node, or two.
    """
    nodes = connected(grid, clients)
    if len(nodes) < clients:
        raise NotStartedError(
            f"{len(nodes)} nodes are connected, no more for {CONNECT_LIMIT_S} s; {clients} clients need "
            f"a node each (in Flower's simulation: --federation-config num-supernodes={clients})"
        )
    question = [Message(RecordDict(), node, IDENTIFY) for node in nodes]
    fleet = {
        node: int(reply.content.metric_records["identity"]["client"])  # type: ignore[arg-type]
        for node, reply in delivered(grid.send_and_receive(question)).items()
    }
    if sorted(fleet.values()) != list(range(clients)):
        raise NotStartedError(
            f"expected nodes for clients 0..{clients - 1}, got clients {sorted(fleet.values())}"
        )
    return fleet

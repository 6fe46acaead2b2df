"""Waiting for nodes: most engines connect them one by one."""

from __future__ import annotations

import time

from flwr.serverapp import Grid

CONNECT_LIMIT_S = 60
"""How long to wait for the next node to connect."""
_CONNECT_POLL_S = 0.1


def connected(grid: Grid, wanted: int) -> list[int]:
    """The connected nodes, in order, once there are enough; fewer if no more connect for CONNECT_LIMIT_S."""
    most, latest = 0, time.monotonic()
    while len(nodes := sorted(grid.get_node_ids())) < wanted:
        if len(nodes) > most:
            most, latest = len(nodes), time.monotonic()
        if time.monotonic() - latest > CONNECT_LIMIT_S:
            break
        time.sleep(_CONNECT_POLL_S)
    return nodes

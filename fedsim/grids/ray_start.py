"""Starting Ray, or connecting to its cluster: whatever stands in the way is one line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from fedsim.core.errors import NotStartedError, UserError
from fedsim.grids.ray_address import STARTS, VARIABLE, check_ray_address, given_address

_LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
"""Bytes that the path of a socket may have."""
_TOO_LATE = "timed out during startup"
"""Ray's words for a node of its own that has not answered for 30 s."""


def check_ray(address: str | None = None, name: str = VARIABLE) -> None:
    """Raise if Ray cannot start here, or if no cluster answers at the address (see `check_ray_address`)."""
    check_ray_address(address, name)
    if given_address(address) in STARTS:
        _check_room_for_sockets()


def start_ray(
    address: str | None = None, name: str = VARIABLE, *, logging_level: int = logging.WARNING, **options: Any
) -> None:
    """`ray.init` with these options; a `NotStartedError` if it fails, besides what `check_ray` raises."""
    check_ray(address, name)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging_level, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        given = given_address(address)
        what = "Ray did not start" if given in STARTS else f"{name} is {given!r}: no Ray cluster"
        raise NotStartedError(f"{what}: {_reason(error)}") from error
    except Exception as error:
        # It has no class of its own.
        if _TOO_LATE not in str(error):
            raise
        raise NotStartedError(
            "Ray did not start in time: try again when this machine has less other work and more free "
            f"memory, or let {VARIABLE} name a cluster that runs"
        ) from error


def _check_room_for_sockets() -> None:
    """A `UserError` if the folder of Ray's files has so long a path that its sockets cannot be named."""
    variable = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = os.environ.get(variable, "/tmp")
    # The longest name that Ray gives to a socket.
    below = f"/ray/session_2000-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    room = _LONGEST_SOCKET - len(below)
    if len(os.fsencode(folder)) > room:
        raise UserError(
            f"{variable} is {folder!r}: Ray needs a folder whose path has at most {room} bytes, for its "
            "sockets; set RAY_TMPDIR to one, such as /tmp"
        )


def _reason(error: Exception) -> str:
    """The first line of what Ray, or the system, says."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error).partition("\n")[0] or type(error).__name__

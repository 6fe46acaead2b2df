"""The Ray cluster that a user names: does anybody answer there?

Ray itself retries for minutes, and then ends in a traceback or an abort.
"""

from __future__ import annotations

import os
import socket

from fedsim.core.errors import RunFailedError, UserError

VARIABLE = "RAY_ADDRESS"
_LIMIT_S = 10
_CLIENT = "ray://"
_SETTINGS = b"\x04"
"""Type of a frame of HTTP/2; it is the fourth byte."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0\0\0\0\0"
"""The client's side of the greeting: the preface, and empty settings."""
STARTS = frozenset({"", "local"})
"""Not addresses: Ray starts a cluster on this machine."""
_FOUND_BY_RAY = STARTS | {"auto"}
"""Not addresses: Ray starts a cluster on this machine, or looks for one there."""


def check_ray_address(address: str | None = None, name: str = VARIABLE) -> None:
    """A `RunFailedError` within seconds if no Ray cluster answers at the address; a `UserError` about others.

    Without an address, the one in `RAY_ADDRESS` is meant. `name` is the setting, for messages.
    """
    address = given_address(address)
    if address in _FOUND_BY_RAY:
        return
    target = address.removeprefix(_CLIENT).partition("?")[0]
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"{name} is {address!r}: expected HOST:PORT, ray://HOST:PORT, auto or local")
    if os.environ.get("RAY_USE_TLS", "0") != "0":
        return  # only Ray knows the certificates

    if not _speaks_grpc(host.strip("[]"), int(port)):
        raise RunFailedError(
            f"{name} is {address!r}: no Ray cluster answers there (tried for {_LIMIT_S} s at most)"
        )


def given_address(address: str | None = None) -> str:
    """The address, or else the one in `RAY_ADDRESS`; it may be empty."""
    return os.environ.get(VARIABLE, "") if address is None else address


def _speaks_grpc(host: str, port: int) -> bool:
    """Whether somebody at the port greets as Ray does: with the settings of HTTP/2. Web servers do not.

    Over a plain socket: after a call through the library of gRPC, a process can no longer be forked.
    """
    try:
        with socket.create_connection((host, port), timeout=_LIMIT_S) as connection:
            connection.sendall(_GREETING)
            return connection.recv(9)[3:4] == _SETTINGS
    except OSError:
        return False

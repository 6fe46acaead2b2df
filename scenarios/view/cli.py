"""The `fedsim view` command."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer


def view(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder of your runs.")] = Path("runs"),
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8765,
) -> None:
    """Show all runs, sweeps, evaluations and audits of a folder in the browser, live.

    It listens on this machine only and changes nothing. End it with Ctrl-C.
    """
    from fedsim.core.errors import UserError

    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")

    import uvicorn

    from scenarios.view.server import HOST, application

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}: choose another, or 0") from error
        typer.echo(f"http://{HOST}:{listening.getsockname()[1]}/ shows {folder}; end it with Ctrl-C")
        config = uvicorn.Config(
            application(folder), log_level="warning", access_log=False, lifespan="off", ws="none"
        )
        uvicorn.Server(config).run(sockets=[listening])

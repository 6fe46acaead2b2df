"""The `fedsim watch` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_POLL_S = 1.0


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a tap, running or finished.")],
    *,
    every: Annotated[
        int, typer.Option(min=1, help="Rounds between two attacks, and how far a forecast looks ahead.")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="Look once, and do not wait for more rounds.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per look instead of a table.")
    ] = False,
) -> None:
    """Watch a recording: how many clients can be told apart by now, and soon?

    Ends when the training ends.
    """
    from contextlib import nullcontext
    from time import sleep

    from rich.console import Console
    from rich.live import Live

    from fedsim.tap.log import progress_of
    from scenarios.watch.view import CAVEAT, line, table
    from scenarios.watch.view import as_json as json_line
    from scenarios.watch.watch import look

    console = Console()
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    found = look(folder, ahead=every)
    with live or nullcontext():
        while True:
            if as_json:
                typer.echo(json_line(found))
            elif live is not None:
                live.update(table(found, folder), refresh=True)
            else:
                typer.echo(line(found))
            if once or found.finished:
                break
            while True:
                rounds, finished = progress_of(folder)
                if finished or rounds >= found.round + every:
                    break
                sleep(_POLL_S)
            found = look(folder, ahead=every, attacked=found.attack)
    if not as_json and live is None:
        typer.echo(CAVEAT)

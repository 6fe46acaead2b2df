"""The `fedsim sweep` command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from scenarios.interruptions import this_command, told, unwound_by_sigterm

BaseSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the base."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, max=4096, help="Worker processes; one per core by default.")
]
Ray = Annotated[bool, typer.Option("--ray", help="Use a Ray cluster instead of local processes.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run points again that other code made (see code.txt).")]
Json = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep file (docs/sweeps.md).")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the sweep; runs/NAME by default.")
    ] = None,
    overrides: BaseSet = None,
    workers: Workers = None,
    ray: Ray = False,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run every combination of the values in a file; an interrupted sweep continues."""
    from scenarios.sweep.api import sweep as run_sweep
    from scenarios.sweep.code import other_code

    with interruptible():
        found = run_sweep(file, out=out, overrides=overrides or (), workers=workers, ray=ray, fresh=fresh)
    if as_json:
        typer.echo(json.dumps(found.rows(), indent=2))
        return
    failed = [result for result in found.results if result.reason]
    typer.echo(f"points           {len(found.results)}, {len(failed)} failed")
    for result in failed[:5]:
        typer.echo(f"  {result.point.name}   {result.reason}")
    if others := other_code(result.other_code for result in found.results):
        typer.echo(f"points           {others}")
    for path in (*found.tables, found.page):
        typer.echo(f"{path.suffix[1:]:<17}{path}")


@contextmanager
def interruptible() -> Iterator[None]:
    """Tell a user who interrupts the block how to continue; finished points are kept."""
    with unwound_by_sigterm(), told(f"; continue with: {this_command()}"):
        yield

"""The `fedsim data` commands: list data sets, get one, check a copy.

Heavy modules are imported inside the commands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsim.core.errors import UserError
from scenarios.interruptions import unwound_by_sigterm

if TYPE_CHECKING:
    from fedsim.data.source import Source

data = typer.Typer(
    help="List data sets, get one, or check a copy.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DATA_FOLDER = Path("data")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set, as in `fedsim data list`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Into = Annotated[Path, typer.Option(help="The folder for data sets.")]


@data.command("list")
def list_(into: Into = DATA_FOLDER, as_json: Json = False) -> None:
    """List the data sets, and which of them are in the data folder."""
    from scenarios.inventory import about

    found = {
        name: {"about": about(source), "copy": _state(source, into)} for name, source in _sources().items()
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for name, entry in found.items():
        typer.echo(f"{name:<10}  {entry['about']}\n{'':<10}  {entry['copy']}")


@data.command()
def get(
    name: Name,
    into: Into = DATA_FOLDER,
    time_limit_s: Annotated[
        float, typer.Option(min=1, help="Time limit for each way to get it, in seconds.")
    ] = 1800,
) -> None:
    """Download a data set and check it, or say which file to put where."""
    from fedsim.data.fetch import Fetching
    from scenarios.console import progress_bars

    source = _source(name)
    if not _copy(source, into):
        with unwound_by_sigterm(), progress_bars() as bar:
            source.get(Fetching(into, time_limit_s, bar("MB")))
    copy = _copy(source, into)
    if copy is None:
        typer.echo(_state(source, into))
        return
    try:
        _print(_check(source, copy))
    except UserError as error:
        raise UserError(f"{error}; remove it, and get can fetch it again") from error


@data.command()
def check(
    name: Name,
    path: Annotated[
        Path, typer.Argument(help="The copy, or the folder that holds it, as in data.path.")
    ] = DATA_FOLDER,
    as_json: Json = False,
) -> None:
    """Read a whole copy and describe it, or say what is wrong with it."""
    found = _check(_source(name), path)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    _print(found)


def _print(found: Mapping[str, str]) -> None:
    for key, value in found.items():
        typer.echo(f"{key:<16}  {value}")


def _sources() -> dict[str, type[Source]]:
    from fedsim.core.settings import members
    from fedsim.data import DataSource

    return members(DataSource)


def _source(name: str) -> type[Source]:
    sources = _sources()
    if name not in sources:
        raise UserError(f"{name}: no such data set, expected one of {', '.join(sources)}")
    return sources[name]


def _copy(source: type[Source], folder: Path) -> Path | None:
    """The copy of a data set in the folder, if there is one."""
    return next((folder / name for name in source.copies if (folder / name).exists()), None)


def _state(source: type[Source], folder: Path) -> str:
    if "path" not in source.model_fields:
        return "generated: nothing to get"
    if not source.copies:
        return "any folder: set data.path"
    copy = _copy(source, folder)
    name = source.model_fields["name"].default
    return (
        f"{copy} (fedsim data check {name} reads it)" if copy else f"not in {folder}: fedsim data get {name}"
    )


def _check(source: type[Source], path: Path) -> dict[str, str]:
    """Load a copy and describe it, line by line."""
    # A copy inside a folder is addressed by the folder, except for an .npz file, which may be anywhere.
    inside = path.parent if path.name in source.copies and path.suffix != ".npz" else path
    settings = source.model_validate({"path": inside} if "path" in source.model_fields else {})
    found = settings.load(0)
    noun = found.task.noun
    return {
        "copy": str(path) if "path" in source.model_fields else "generated with seed 0",
        f"training {noun}": str(len(found.train)),
        f"test {noun}": str(len(found.test)),
        **found.task.summary(found.train.targets),
        "attributes": ", ".join(found.train.attributes) or "none",
        "release": settings.compare(found),
    }

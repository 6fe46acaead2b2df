"""The `fedsim compare` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR …", help="Folders of finished runs.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("compare.html"),
) -> None:
    """Compare finished runs: the settings that differ, and the figures side by side."""
    from fedsim.core.errors import UserError
    from fedsim.core.files import write_text, writing
    from scenarios.compare.comparison import differing, figures, read_runs
    from scenarios.compare.page import render_comparison
    from scenarios.pages import figure

    if out.is_dir():
        raise UserError(f"--out {out}: expected a file, such as compare.html")
    found = read_runs(runs)
    width = max(14, *(len(run.name) + 2 for run in found))
    typer.secho(f"{'':<42}" + "".join(f"{run.name:>{width}}" for run in found), bold=True)
    for key, values in differing(found).items():
        typer.echo(f"{key:<42}" + "".join(f"{value:>{width}}" for value in values))
    for title, numbers in figures(found).items():
        typer.echo(f"{title:<42}" + "".join(f"{figure(value):>{width}}" for value in numbers))
    with writing(out):
        write_text(out, render_comparison(found))
    typer.echo(f"page: {out}")

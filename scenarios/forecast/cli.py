"""The `fedsim forecast` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def forecast(
    *,
    clients: Annotated[int, typer.Option(help="Number of clients in the federation.")],
    rate: Annotated[float, typer.Option(help="Chance that a client takes part in a round.")] = 0.1,
    window: Annotated[int, typer.Option(help="Rounds per published count.")] = 10,
    known: Annotated[float, typer.Option(help="Fraction of the counts that are published.")] = 1.0,
    counts_noise: Annotated[float, typer.Option(help="Standard deviation of the noise in the counts.")] = 0.0,
    noise: Annotated[
        float,
        typer.Option(help="Noise per participant, relative to the entries of an update; needs --dim."),
    ] = 0.0,
    dim: Annotated[int | None, typer.Option(help="Number of entries of an update.")] = None,
    alternative: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE[,KEY=VALUE]", help="A change to compare with, such as window=50; repeatable."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("forecast.html"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the curves as JSON instead of a table.")
    ] = False,
) -> None:
    """Forecast after how many rounds clients are exposed, and the effect of changes."""
    from fedsim.core.errors import UserError
    from fedsim.core.files import write_text, writing
    from scenarios.console import progress_bars
    from scenarios.forecast.forecast import Setting, compared
    from scenarios.forecast.forecast import forecast as forecast_setting
    from scenarios.forecast.page import render_forecast
    from scenarios.run.checking import checked
    from scenarios.run.scenario import apply

    given = {"clients": clients, "rate": rate, "window": window, "known": known}
    given |= {"counts_noise": counts_noise, "noise": noise} | ({} if dim is None else {"dim": dim})
    settings = {"as it is": checked(Setting, given, "forecast")}
    for change in alternative or ():
        content = dict(given)
        for override in change.split(","):
            key, equals, value = override.partition("=")
            if not key.strip() or not equals:
                raise UserError(f"--alternative {change}: expected KEY=VALUE, such as window=50")
            apply(content, f"{key.replace('-', '_')}{equals}{value}")
        settings[change] = checked(Setting, content, f"--alternative {change}")
    if out.is_dir():
        raise UserError(f"--out {out}: expected a file, such as forecast.html")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")

    with progress_bars() as bar:
        found = {name: forecast_setting(setting, bar(name)) for name, setting in settings.items()}
    with writing(out):
        write_text(out, render_forecast(found))
    if as_json:
        typer.echo(json.dumps({name: curve.figures() for name, curve in found.items()}, indent=2))
        return
    width = max(map(len, found))
    typer.echo(
        f"{'rounds until exposed':<{max(width, 20)}}  first client      half  nearly all  half, at best"
    )
    for name, curve in found.items():
        marks = (curve.first, curve.half, curve.nearly_all, curve.half_at_best)
        rounds = (f"{'–' if r is None else r:>10}" for r in marks)
        typer.echo(f"{name:<{max(width, 20)}}  " + "  ".join(rounds))
    if any(curve.nearly_all is None for curve in found.values()):
        typer.echo("–: not within the rounds tried")
    for name, curve in found.items():
        typer.echo(f"{name}: based on {curve.rests_on()}")
    for name in list(found)[1:]:
        typer.echo(compared(found["as it is"], found[name], name))
    typer.echo(f"page: {out}")

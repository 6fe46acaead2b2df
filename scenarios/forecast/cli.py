"""The `fedsim forecast` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

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
    from scenarios.forecast.api import forecast as forecast_settings

    result = forecast_settings(
        clients=clients,
        rate=rate,
        window=window,
        known=known,
        counts_noise=counts_noise,
        noise=noise,
        dim=dim,
        alternatives={change: _change(change) for change in alternative or ()},
        out=out,
    )
    found = result.forecasts
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
        typer.echo("–: not within the rounds tried, or not by counting alone where no attack was tried")
    for name, curve in found.items():
        typer.echo(f"{name}: based on {curve.rests_on()}")
    for sentence in result.sentences:
        typer.echo(sentence)
    typer.echo(f"page: {out}")


def _change(text: str) -> dict[str, Any]:
    """The settings in `KEY=VALUE[,KEY=VALUE]`."""
    from fedsim.core.errors import UserError
    from scenarios.run.overrides import toml_value

    change = {}
    for override in text.split(","):
        key, equals, value = override.partition("=")
        if not key.strip() or not equals:
            raise UserError(f"--alternative {text}: expected KEY=VALUE, such as window=50")
        change[key.strip().replace("-", "_")] = toml_value(value)
    return change

"""The page of a forecast: the curves, and the rounds until clients are exposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scenarios.forecast.forecast import COUNTED, PLANTED, CurvePoint, Forecast, compared
from scenarios.pages import embedded, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def render_forecast(found: Mapping[str, Forecast]) -> str:
    """One self-contained page; the other forecasts are compared with the first."""
    (_, before), *others = found.items()
    return render(
        "forecast.html.j2",
        setting=before.setting,
        picture=embedded(draw(found)),
        rows=[
            {"name": name, "marks": [f.first, f.half, f.nearly_all, f.half_at_best], "rests_on": f.rests_on()}
            for name, f in found.items()
        ],
        sentences=[compared(before, after, name) for name, after in others],
    )


def draw(found: Mapping[str, Forecast]) -> Figure:
    """The curves on a figure of their own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    draw_on(figure.subplots(), found)
    return figure


def draw_on(axes: Axes, found: Mapping[str, Forecast]) -> None:
    """Exposed clients over rounds: dotted by counting, with markers by attacks, dashed at best."""
    for number, (name, forecast) in enumerate(found.items()):
        colour = f"C{number}"
        counted = [p for p in forecast.curve if p.basis == COUNTED]
        planted = [p for p in forecast.curve if p.basis == PLANTED]
        axes.plot([p.rounds for p in counted], [p.fraction for p in counted], color=colour, lw=1, ls=":")
        axes.plot(
            [p.rounds for p in (*counted[-1:], *planted)],
            [p.fraction for p in (*counted[-1:], *planted)],
            color=colour,
            marker="o",
            ms=4,
            label=name,
        )
        if forecast.ceiling:
            # It ends where nearly all are exposed, and more rounds expose no fewer.
            last, end = forecast.ceiling[-1], forecast.curve[-1]
            until = [CurvePoint(max(last.rounds, end.rounds), max(last.fraction, end.fraction), PLANTED)]
            axes.plot(
                [p.rounds for p in (*forecast.ceiling, *until)],
                [p.fraction for p in (*forecast.ceiling, *until)],
                color=colour,
                ls="--",
                lw=1,
                label=f"{name}: ceiling",
            )
    axes.set(xlabel="rounds", ylabel="exposed clients", ylim=(-0.02, 1.05), xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()

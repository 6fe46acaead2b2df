"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scenarios.charts import SERIES, Spec, chart, coloured, layer, name, number, told
from scenarios.compare.comparison import Compared, differing, figures
from scenarios.pages import render
from scenarios.run.history import ROUND, Row, metric_column


def render_comparison(runs: Sequence[Compared]) -> str:
    """One self-contained page."""
    (metric, *others) = {run.result.training.metric for run in runs}
    learned = {run.name: run.history for run in runs if run.history} if not others else {}
    return render(
        "compare.html.j2",
        runs=runs,
        settings=differing(runs),
        figures=figures(runs),
        bars=_bars(runs),
        curves=learning_curves(learned, metric) if learned else None,
        metric=metric,
    )


def learning_curves(histories: Mapping[str, Sequence[Row]], metric: str) -> Spec:
    """The metric of several runs over their rounds, a line each."""
    column = metric_column(metric)
    rows = [
        {"run": run, "round": int(row[ROUND]), "value": row[column]}
        for run, history in histories.items()
        for row in history
        if column in row
    ]
    colours = {run: SERIES[place % len(SERIES)] for place, run in enumerate(histories)}
    dashes = [[1, 0] if place < len(SERIES) else [4, 3] for place in range(len(histories))]
    scale = {"domain": [0, 1]} if metric == "accuracy" else {"zero": True}
    line = layer(
        rows,
        {"type": "line", "point": True},
        x=number("round", "round", axis={"tickMinStep": 1}),
        y=number("value", f"test {metric}", scale=scale),
        # More runs than colours: the others are dashed.
        strokeDash=name("run", scale={"domain": list(histories), "range": dashes}, legend=None),
        color={**coloured("run", colours), "legend": {"columns": 2, "symbolLimit": 40}},
        tooltip=told(run="run", round="round", value=f"test {metric}"),
    )
    return chart(line, height=240, zoom=True)


def _bars(runs: Sequence[Compared]) -> Spec:
    """Participations found: guess, attack and ceiling of every run."""
    shown = ("guess", "attack", "ceiling")
    titles = {f"participations found: {each}": each for each in shown}
    rows = [
        {"run": run.name, "of": titles[title], "share": value}
        for title, values in figures(runs).items()
        if title in titles
        for run, value in zip(runs, values, strict=True)
        if value is not None
    ]
    bars = layer(
        rows,
        "bar",
        y=name("run", axis={"labelLimit": 150}),
        yOffset=name("of"),
        x=number("share", "participations found", scale={"domain": [0, 1]}),
        color=coloured("of", {"guess": "var(--guess)", "attack": "var(--ink)", "ceiling": "var(--ceiling)"}),
        tooltip=told(run="run", of="by", share="share"),
    )
    return chart(bars, height=70 * len(runs) + 20)

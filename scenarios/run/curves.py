"""Charts of how the server's model learned, and what that took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scenarios.charts import INK, Spec, chart, layer, number, told
from scenarios.run.history import LOSS, RECEIVED, ROUND, SECONDS, SENT, metric_column


def curves(history: Sequence[Mapping[str, float]], metric: str) -> dict[str, Spec]:
    """Charts of the metric and of the loss over rounds, by title; none without a history."""
    columns = {f"test {metric}": metric_column(metric), "test loss": LOSS} if history else {}
    if history and "test_perplexity" in history[0]:
        columns["test perplexity"] = "test_perplexity"
    return {title: _curve(history, title, column) for title, column in columns.items()}


def _curve(history: Sequence[Mapping[str, float]], title: str, column: str) -> Spec:
    rows = [{"round": int(row[ROUND]), "value": row[column]} for row in history]
    # Accuracies are shares of one: a curve that fills the height would exaggerate small changes.
    scale = {"domain": [0, 1]} if title == "test accuracy" else {"zero": True}
    line = layer(
        rows,
        {"type": "line", "point": {"size": 40, "color": INK}, "color": INK},
        x=number("round", "round", axis={"tickMinStep": 1}),
        y=number("value", title, scale=scale),
        tooltip=told(round="round", value=title),
    )
    return chart(line, height=180, zoom=True)


def traffic(history: Sequence[Mapping[str, float]], pace: Sequence[Mapping[str, float]]) -> str:
    """Bytes and speed of the training in a sentence or two."""
    if not history:
        return ""
    last = history[-1]
    said = f"{_size(last[SENT])} to devices and {_size(last[RECEIVED])} back in {int(last[ROUND])} rounds"
    if pace and pace[-1][SECONDS] > 0:
        said += f"; {pace[-1][ROUND] / pace[-1][SECONDS]:.1f} rounds per second"
    return f"{said}."


def _size(count: float) -> str:
    unit = max(0, min(4, int(math.log10(max(count, 1)) // 3)))
    return f"{count / 1000**unit:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"

"""Charts in the language of Vega-Lite: plain dictionaries, which the reader's browser draws.

Colours are variables of `templates/style.css`, so that a chart can be read in the dark and on paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]
"""A chart, or a layer of one."""

Rows = Sequence[Mapping[str, Any]]
"""The data of a chart: one dictionary per mark."""

INK, GUESS, CEILING, ORACLE = "var(--ink)", "var(--guess)", "var(--ceiling)", "var(--oracle)"
MISSED, INVENTED, NOTHING = "var(--missed)", "var(--invented)", "var(--nothing)"

SERIES = tuple(f"var(--series-{number})" for number in range(1, 9))
"""Colours of lines and marks that have no colour of their own."""
MOST_MARKS = 20_000
"""Marks in a chart that can be hovered; more are drawn as a picture, which browsers show at once."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
"""With the colours, 48 different marks."""


def chart(*layers: Spec, height: int = 240, zoom: bool = False, **more: Any) -> Spec:
    """Layers in one frame that is as wide as the page; with `zoom`, its axes can be moved and stretched."""
    together = [dict(layer) for layer in layers]
    if zoom:
        # With Shift, so that the wheel alone still scrolls the page.
        select = {"type": "interval", "zoom": "wheel![event.shiftKey]"}
        together[0]["params"] = [{"name": "zoom", "select": select, "bind": "scales"}]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": together,
        **more,
    }


def layer(rows: Rows, mark: str | Mapping[str, Any], **encoding: Any) -> Spec:
    """Marks for these rows; every channel of the encoding is a field's name or a dictionary."""
    made = {"type": mark} if isinstance(mark, str) else dict(mark)
    channels = {
        name: {"field": field} if isinstance(field, str) else field for name, field in encoding.items()
    }
    return {"data": {"values": list(rows)}, "mark": made, "encoding": channels}


def number(field: str, title: str, **more: Any) -> dict[str, Any]:
    """A channel of numbers; a `domain` or a `type` of its scale go into `scale`."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def name(field: str, title: str | None = None, **more: Any) -> dict[str, Any]:
    """A channel of names, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


def coloured(field: str, colours: Mapping[str, str]) -> dict[str, Any]:
    """The colour of every name, with a legend in this order."""
    return name(field, scale={"domain": list(colours), "range": list(colours.values())})


def told(**titles: str) -> list[dict[str, Any]]:
    """What a mark says when the pointer is over it: field → its title."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def line_at(value: float, label: str, colours: Mapping[str, str], *, along: str = "y") -> Spec:
    """A dashed line across the chart with an entry in the legend of `colours`."""
    encoding = {
        along: {"datum": value},
        "color": {**coloured("label", colours)},
        "tooltip": told(label=" ", value=" "),
    }
    return layer(
        [{"label": label, "value": round(value, 4)}],
        {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5},
        **encoding,
    )


def participations(rows: Rows, clients: Sequence[str], rounds: int, colours: Mapping[str, str]) -> Spec:
    """A cell per row, whose fields are client, round and kind: clients across, rounds down.

    Only kinds that occur have an entry in the legend of `colours`.
    """
    kinds = {row["kind"] for row in rows}
    cells = layer(
        rows,
        "rect",
        x=name(
            "client",
            "client",
            axis={"labelAngle": 0, "labelOverlap": True},
            scale={"domain": list(clients), "paddingInner": 0.12},
        ),
        y={
            "field": "round",
            "type": "ordinal",
            "title": "round",
            "axis": {"labelOverlap": True, "ticks": False},
            "scale": {"domain": list(range(rounds)), "paddingInner": 0.08},
        },
        color=coloured("kind", {kind: colour for kind, colour in colours.items() if kind in kinds}),
        tooltip=told(client="client", round="round", kind="participation"),
    )
    return chart(cells, height=max(140, min(520, 5 * rounds)))

"""The chart of an evaluation: what leaks against what the model is worth, and the best trade-offs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scenarios.charts import SERIES, SHAPES, Spec, chart, coloured, layer, name, number, told
from scenarios.evaluate.figures import ACCURACY, SINGLED_OUT, SINGLED_OUT_CEILING
from scenarios.evaluate.outcome import Outcome
from scenarios.evaluate.recommendation import price

FRONT = "var(--muted)"
"""Colour of the line that joins the best trade-offs."""


def leakage(outcome: Outcome) -> float:
    """Share of clients that can be singled out: at best, or if there is no ceiling, by our attack."""
    figures = outcome.figures
    return figures.get(SINGLED_OUT_CEILING, figures[SINGLED_OUT]).mean


def frontier(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that no other beats in both leakage and accuracy, from the least leakage upwards.

    Of several that are equal in both, the cheapest.
    """
    placed = sorted(_placed(outcomes), key=lambda o: (leakage(o), -o.figures[ACCURACY].mean, price(o)))
    best: list[Outcome] = []
    for outcome in placed:
        if not best or outcome.figures[ACCURACY].mean > best[-1].figures[ACCURACY].mean:
            best.append(outcome)
    return best


def _placed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if SINGLED_OUT in o.figures and ACCURACY in o.figures]


def trade_offs(outcomes: Sequence[Outcome], metric: str) -> Spec:
    """Clients singled out against the metric: attack, ceiling, intervals, and the line of the frontier."""
    rows = [_mark(outcome) for outcome in _placed(outcomes)]
    at_best = [row for row in rows if row["best"] is not None]
    x = number(
        "leak",
        "leakage: clients singled out",
        scale={"domain": [-0.03, 1.03], "nice": False},
        axis={"values": [0, 0.2, 0.4, 0.6, 0.8, 1]},
    )
    y = number("accuracy", f"utility: test {metric}", scale={"zero": False, "padding": 12})
    looks = _looks([row["defence"] for row in rows])
    colour = {"color": looks["color"]}
    said = told(
        defence="defence",
        attack="singled out by our attack",
        ceiling="at best",
        utility=f"test {metric}",
    )
    point = {"type": "point", "size": 110}
    return chart(
        _front(outcomes, x, y),
        layer(at_best, {"type": "rule", "strokeDash": [2, 3]}, x=x, x2="best", y=y, **colour),
        layer(rows, "rule", x=number("low", ""), x2="high", y=y, **colour),
        layer(rows, "rule", x=x, y=number("below", ""), y2="above", **colour),
        layer(at_best, point | {"strokeWidth": 2}, x=number("best", ""), y=y, **looks, tooltip=said),
        layer(rows, point | {"filled": True, "opacity": 1}, x=x, y=y, **looks, tooltip=said),
        height=340,
        zoom=True,
    )


def _looks(names: Sequence[str]) -> dict[str, Any]:
    """A colour and a shape for every defence; no two defences have the same of both."""
    colours = {each: SERIES[place % len(SERIES)] for place, each in enumerate(names)}
    shapes = [SHAPES[place // len(SERIES) % len(SHAPES)] for place in range(len(names))]
    return {
        "color": {**coloured("defence", colours), "legend": {"columns": 2, "symbolLimit": 100}},
        "shape": name("defence", scale={"domain": list(names), "range": shapes}),
    }


def _front(outcomes: Sequence[Outcome], x: dict[str, Any], y: dict[str, Any]) -> Spec:
    """A broad line behind the marks; a single outcome that beats all others is a spot."""
    rows = [
        {"leak": leakage(outcome), "accuracy": outcome.figures[ACCURACY].mean, "place": place}
        for place, outcome in enumerate(frontier(outcomes))
    ]
    look = {"color": FRONT, "opacity": 0.35}
    mark = {"type": "line", "strokeWidth": 6, **look, "point": {"size": 260, **look}}
    return layer(rows, mark, x=x, y=y, order=number("place", ""))


def _mark(outcome: Outcome) -> dict[str, Any]:
    leak, accuracy = outcome.figures[SINGLED_OUT], outcome.figures[ACCURACY]
    best = outcome.figures.get(SINGLED_OUT_CEILING)
    (low, high), (below, above) = leak.interval, accuracy.interval
    return {
        "defence": outcome.name,
        "leak": leak.mean,
        "low": low,
        "high": high,
        "accuracy": accuracy.mean,
        "below": below,
        "above": above,
        "best": None if best is None else best.mean,
        "attack": leak.shown(share=True),
        "ceiling": "not computed" if best is None else best.shown(share=True),
        "utility": accuracy.shown(share=True),
    }

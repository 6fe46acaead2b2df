"""The page of a sweep: a curve or heat maps of one figure, and a table that links to every point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scenarios.pages import embedded, render
from scenarios.planted import Planted
from scenarios.sweep.code import other_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.run import PointResult
from scenarios.sweep.sweep import Sweep, shown
from scenarios.sweep.table import tidy
from scenarios.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = "seed"
"""Pictures show means over this key. Other keys are axes, or get a panel or a line each."""

Place = tuple[Any, ...]
"""The values of some keys."""


def render_sweep(sweep: Sweep, results: Sequence[PointResult], directory: SweepDirectory) -> str:
    """The page for all points, done or failed."""
    rows = tidy(sweep, results)
    name = sweep.file.figure
    keys = [key for key in sweep.keys if key != SEED]
    axes = sweep.file.axes or keys[:2]
    return render(
        "sweep.html.j2",
        title=sweep.file.title,
        figure=name,
        axes=axes,
        keys=sweep.keys,
        averaged=[SEED] if SEED in sweep.keys and axes else [],
        failed=sum(bool(result.reason) for result in results),
        others=other_code(result.other_code for result in results),
        table=directory.table.name,
        settings=directory.file.read_text(encoding="utf-8"),
        picture=embedded(draw(rows, name, axes, [key for key in keys if key not in axes])) if axes else "",
        rows=[
            {
                "shown": [shown(row[key]) for key in sweep.keys],
                "figure": "–" if row.get(name) is None else f"{row[name]:.4g}",
                "reason": result.reason,
                "link": None
                if isinstance(result.point.settings, Planted)
                else directory.point(result.point).report.relative_to(directory.path).as_posix(),
            }
            for row, result in zip(rows, results, strict=True)
        ],
    )


def draw(rows: Sequence[dict[str, Any]], figure: str, axes: Sequence[str], rest: Sequence[str]) -> Figure:
    """A curve over one axis with a line per setting of the `rest`, or a heat map per setting."""
    from matplotlib.figure import Figure

    values = _values(rows, figure, axes, rest)
    ticks = [list(dict.fromkeys(row[key] for row in rows)) for key in axes]
    others = list(dict.fromkeys(other for _, other in values))
    if len(axes) == 1:
        picture = Figure(figsize=(9, 4.2), layout="constrained")
        panel = picture.subplots()
        _curves(panel, values, ticks[0], rest, others)
        panel.set(xlabel=axes[0], ylabel=figure)
        return picture
    across = min(3, len(others))
    down = -(-len(others) // across)
    width, height = 1.6 + 0.75 * len(ticks[0]), 1.3 + 0.42 * len(ticks[1])
    picture = Figure(figsize=(max(4.5, width) * across, max(2.4, height) * down), layout="constrained")
    known = [x for found in values.values() for x in found]
    limits = (min(0.0, *known), max(1.0, *known)) if len(known) > 1 else (0.0, 1.0)
    panels = picture.subplots(down, across, squeeze=False).ravel()
    for panel, other in itertools.zip_longest(panels, others):
        if other is None:
            panel.set_visible(False)
            continue
        table = [[_mean(values.get(((x, y), other), [])) for x in ticks[0]] for y in ticks[1]]
        heat_map(panel, np.array(table), ticks, limits)
        panel.set(xlabel=axes[0], ylabel=axes[1], title=_label(rest, other))
    return picture


def draw_curves(panel: Axes, sweep: Sweep, rows: Sequence[Row]) -> None:
    """A sweep's figure over its first key, with a line for every setting of the other keys."""
    axis, *rest = [*sweep.file.axes, *(k for k in sweep.keys if k not in (SEED, *sweep.file.axes))] or [SEED]
    values = _values(rows, sweep.file.figure, [axis], rest)
    others = list(dict.fromkeys(other for _, other in values))
    _curves(panel, values, list(dict.fromkeys(row[axis] for row in rows)), rest, others)
    panel.set(xlabel=axis, ylabel=sweep.file.figure)


def _values(
    rows: Sequence[Row], figure: str, axes: Sequence[str], rest: Sequence[str]
) -> dict[tuple[Place, Place], list[float]]:
    """The figure at every place of the axes and of the rest, one for each of the keys that are averaged."""
    values: dict[tuple[Place, Place], list[float]] = {}
    for row in rows:
        place = tuple(row[key] for key in axes), tuple(row[key] for key in rest)
        found = values.setdefault(place, [])
        if _is_number(row.get(figure)):
            found.append(float(row[figure]))
    return values


def _curves(
    panel: Axes,
    values: dict[tuple[Place, Place], list[float]],
    ticks: list[Any],
    rest: Sequence[str],
    others: Sequence[Place],
) -> None:
    numeric = all(_is_number(tick) for tick in ticks)
    for other in others:
        places = [(i, tick) for i, tick in enumerate(ticks) if values.get(((tick,), other))]
        if numeric:
            places.sort(key=lambda place: place[1])
        found = [values[(tick,), other] for _, tick in places]
        mean = np.array([_mean(f) for f in found])
        spread = np.abs([[min(f) for f in found], [max(f) for f in found]] - mean)
        x = [tick if numeric else i for i, tick in places]
        panel.errorbar(x, mean, yerr=spread, marker="o", capsize=3, label=_label(rest, other))
    if not numeric:
        panel.set_xticks(range(len(ticks)), [shown(tick) for tick in ticks])
    panel.grid(alpha=0.3)
    if rest:
        panel.legend(fontsize=8)


def heat_map(
    panel: Axes,
    table: Any,
    ticks: Sequence[list[Any]],
    limits: tuple[float, float],
    *,
    colours: str = "cividis",
) -> None:
    """A table (down × across) in colours, with its numbers; NaN stays blank. `ticks`: across, then down."""
    heatmap = panel.imshow(table, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        if not np.isnan(value):
            dark = sum(heatmap.cmap(heatmap.norm(value))[:3]) < 1.5
            panel.text(
                j, i, f"{value:.3g}", ha="center", va="center", fontsize=8, color="white" if dark else "black"
            )
    panel.set_xticks(range(len(ticks[0])), [shown(tick) for tick in ticks[0]])
    panel.set_yticks(range(len(ticks[1])), [shown(tick) for tick in ticks[1]])


def _label(keys: Sequence[str], values: Place) -> str:
    return ", ".join(f"{key} = {shown(value)}" for key, value in zip(keys, values, strict=True))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

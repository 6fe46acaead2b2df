"""An outcome as a picture: the paper's heat map, ours and the difference, curves, or bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from scenarios.reproduction.measures.cell import Cell
from scenarios.reproduction.outcome import Outcome
from scenarios.sweep.page import heat_map
from scenarios.sweep.sweep import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIVERGING = "RdBu"
"""Blue where ours is more, red where it is less."""


def draw(outcome: Outcome) -> Figure:
    """The picture that the experiment asks for; cells that were not run are blank."""
    drawn = {"heat maps": _heat_maps, "curves": _curves, "bars": _bars}
    return drawn[outcome.experiment.file.picture](outcome)


def _heat_maps(outcome: Outcome) -> Figure:
    from matplotlib.figure import Figure

    across, down, grid = outcome.across, outcome.down, outcome.grid()
    size = (3 * (1.4 + 0.42 * len(across)) + 1.5, 1.4 + 0.27 * len(down))
    figure = Figure(figsize=(max(9.0, size[0]), max(3.0, size[1])), layout="constrained")

    def table(value: Callable[[Cell], float | None]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        rows = [[value(grid[side, x]) if (side, x) in grid else None for x in across] for side in down]
        return np.array(rows, dtype=np.float64)

    paper, ours = table(lambda cell: cell.paper), table(lambda cell: cell.ours)
    known = np.concatenate((paper[~np.isnan(paper)], ours[~np.isnan(ours)], [0.0, 1.0]))
    limits = (float(known.min()), float(known.max()))
    names = [" · ".join(value for _, value in side) for side in down]
    for panel, title, values in zip(
        figure.subplots(1, 3, sharey=True),
        ("the paper's", "ours", "ours − the paper's"),
        (paper, ours, ours - paper),
        strict=True,
    ):
        if title.startswith("ours −"):
            heat_map(panel, values, [across, names], (-limits[1], limits[1]), colours=DIVERGING)
        else:
            heat_map(panel, values, [across, names], limits)
        panel.set(title=title, xlabel=outcome.experiment.file.across)
    figure.supylabel(" · ".join(key for key, _ in down[0]), fontsize=9)
    return figure


def _curves(outcome: Outcome) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panel = figure.subplots()
    across, grid = outcome.across, outcome.grid()
    for number, side in enumerate(outcome.down):
        cells = [(x, grid[side, x]) for x in across if (side, x) in grid]
        label = ", ".join(f"{key.rpartition('.')[2]} = {value}" for key, value in side) or "ours"
        run = [(x, cell.ours) for x, cell in cells if cell.ours is not None]
        if not run:
            continue
        panel.plot(*zip(*run, strict=True), marker="o", color=f"C{number}", label=label)
        theirs = [(x, cell.paper) for x, cell in cells if cell.paper is not None]
        if theirs:
            panel.plot(*zip(*theirs, strict=True), "x", color=f"C{number}", label=f"{label}, the paper's")
        for dash, limit in zip((":", "--", "-."), cells[0][1].limits, strict=False):
            line = [(x, cell.limits[limit]) for x, cell in cells if cell.ours is not None]
            panel.plot(*zip(*line, strict=True), dash, color=f"C{number}", lw=1, label=limit)
    panel.set(xlabel=outcome.experiment.file.across, ylabel=outcome.experiment.file.measure.label)
    panel.grid(alpha=0.3)
    handles, _ = panel.get_legend_handles_labels()
    if handles:
        # Below the curves, because names are long and there is one per line.
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
        figure.set_figheight(figure.get_figheight() + 0.17 * -(-len(handles) // 2))
    return figure


def _bars(outcome: Outcome) -> Figure:
    """A bar per cell with the paper's value on it, and a line at the value without an attack."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.34 * len(outcome.cells)), layout="constrained")
    panel = figure.subplots()
    across = outcome.experiment.file.across
    names = [
        " · ".join((*(value for _, value in outcome.side(cell)), shown(cell.place[across])))
        for cell in outcome.cells
    ]
    run = [(place, cell) for place, cell in enumerate(outcome.cells) if cell.ours is not None]
    lengths = [cell.ours or 0.0 for _, cell in run]
    bars = panel.barh([place for place, _ in run], lengths, color="C0", label="ours")
    panel.bar_label(bars, fmt="%.3g", padding=4, fontsize=9)
    theirs = [(cell.paper, place) for place, cell in run if cell.paper is not None]
    if theirs:
        panel.plot(*zip(*theirs, strict=True), "D", color="C1", label="the paper's")
    if run and run[0][1].baseline is not None:
        panel.axvline(run[0][1].baseline, color="0.3", ls="--", lw=1, label="without any attack")
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.margins(x=0.12)
    panel.set(xlabel=outcome.experiment.file.measure.label)
    panel.grid(axis="x", alpha=0.3)
    if run:
        panel.legend(fontsize=8)
    return figure

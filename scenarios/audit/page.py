"""The page of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from attacks.disaggregation.recovery import Outcome, Recovery
from scenarios import charts
from scenarios.audit.audit import Audit
from scenarios.audit.dossier import statements
from scenarios.audit.words import conclusion, noise, remarks, scored
from scenarios.charts import MOST_MARKS, participations
from scenarios.pages import BACKGROUND, INK, UNRECOVERED, embedded, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLIENTS_ON_PAGE = 500
"""Rows of the table on the page; clients.csv has all of them."""


def render_audit(audit: Audit, clients: Sequence[Mapping[str, Any]]) -> str:
    """One self-contained page; `clients` are the rows of its table."""
    return render(
        "audit.html.j2",
        audit=audit,
        summary=audit.summary(),
        conclusion=conclusion(audit),
        noise=noise(audit),
        scored="" if audit.score is None else scored(audit.score),
        remarks=remarks(audit),
        statements=statements(audit),
        version=version("fedsim-audit"),
        participations=_participations(audit.recovery) if audit.separated else None,
        clients=clients[:CLIENTS_ON_PAGE],
    )


def _participations(recovery: Recovery) -> dict[str, Any]:
    """The recovered participations: a chart, or a picture if there are too many."""
    unresolved = recovery.outcome == Outcome.UNRESOLVED
    rounds, columns = np.nonzero((recovery.participation == 1) & ~unresolved)
    if len(rounds) + len(recovery.participation) * unresolved.sum() > MOST_MARKS:
        return {"spec": None, "picture": embedded(_draw(recovery))}
    names = [str(client) for client in recovery.clients]
    rows = [
        {"client": names[k], "round": int(r), "kind": "took part"}
        for r, k in zip(rounds, columns, strict=True)
    ]
    rows += [
        {"client": names[k], "round": r, "kind": "nothing recovered"}
        for k in np.flatnonzero(unresolved)
        for r in range(len(recovery.participation))
    ]
    colours = {"took part": charts.INK, "nothing recovered": charts.NOTHING}
    return {"spec": participations(rows, names, len(recovery.participation), colours), "picture": ""}


def _draw(recovery: Recovery) -> Figure:
    """The recovered participation on a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    draw_on(figure.subplots(), recovery)
    return figure


def draw_on(axes: Axes, recovery: Recovery) -> None:
    """Recovered participation, clients across and rounds down; grey where nothing was recovered."""
    from matplotlib.colors import ListedColormap

    shown = np.where(recovery.outcome == Outcome.UNRESOLVED, 2, np.minimum(recovery.participation, 2))
    axes.imshow(
        shown,
        cmap=ListedColormap([BACKGROUND, INK, UNRECOVERED]),
        vmin=0,
        vmax=2,
        aspect="auto",
        interpolation="nearest",
    )
    axes.set(xlabel="client, in order of first appearance", ylabel="round")
    axes.locator_params(integer=True)

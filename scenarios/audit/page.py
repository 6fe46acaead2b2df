"""The page of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from attacks.disaggregation.recovery import Outcome, Recovery
from scenarios.audit.audit import Audit
from scenarios.audit.dossier import statements
from scenarios.audit.words import conclusion, noise, remarks, scored
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
        picture=embedded(_draw(audit.recovery)) if audit.separated else "",
        clients=clients[:CLIENTS_ON_PAGE],
    )


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

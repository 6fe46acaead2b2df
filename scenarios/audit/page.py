"""The page of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attacks.disaggregation.recovery import Outcome, Recovery
from scenarios.pages import INK, PAPER, UNKNOWN, image, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scenarios.audit.audit import Audit

CLIENTS_ON_PAGE = 500
"""Rows of the table on the page; all are in clients.csv."""


def render_audit(audit: Audit) -> str:
    """One self-contained page."""
    from scenarios.audit.audit import client_rows

    return render(
        "audit.html.j2",
        audit=audit,
        summary=audit.summary(),
        advice=advice(audit),
        picture=image(_draw(audit.recovery)) if audit.separated else "",
        clients=client_rows(audit.recovery)[:CLIENTS_ON_PAGE],
    )


def advice(audit: Audit) -> list[str]:
    """What would have prevented it, in sentences: from what was tried on this log, and from counting."""
    if not audit.separated:
        return ["Nobody was separated: as things are, the sums and counts of this log do not give it away."]
    sentences = [
        f"With {tried.change}, {tried.separated} of the {audit.separated} would have come out the same."
        for tried in audit.alternatives
    ]
    sentences.append(
        f"As long as there are no more rounds than clients ({audit.num_clients} here, against {audit.rounds} "
        "rounds) sums cannot tell them apart, and only counts that leave no choice give anybody away."
    )
    sentences.append(
        "Clients that only ever take part together are separated as a group at best, whatever the rounds."
    )
    return sentences


def _draw(recovery: Recovery) -> Figure:
    """Recovered participation, clients across and rounds down; grey where there is nothing to stand by."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    shown = np.where(recovery.outcome == Outcome.UNRESOLVED, 2, np.minimum(recovery.participation, 2))
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(
        shown,
        cmap=ListedColormap([PAPER, INK, UNKNOWN]),
        vmin=0,
        vmax=2,
        aspect="auto",
        interpolation="nearest",
    )
    axes.set(xlabel="client, in order of first appearance", ylabel="round")
    return figure

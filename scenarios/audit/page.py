"""The page of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attacks.disaggregation.recovery import Outcome, Recovery
from scenarios.pages import INK, PAPER, UNKNOWN, embedded, render

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
        conclusion=conclusion(audit),
        remarks=remarks(audit),
        advice=advice(audit),
        picture=embedded(_draw(audit.recovery)) if audit.separated else "",
        clients=client_rows(audit.recovery)[:CLIENTS_ON_PAGE],
    )


def conclusion(audit: Audit) -> str:
    """What leaked, and how sure that is, in a sentence or two."""
    if not audit.separated:
        return (
            "This attack separated nobody from these sums and counts. That is no proof that it cannot be "
            "done: with more rounds, or by another attack, it may."
        )
    return (
        f"It is known of {audit.separated} of {audit.num_clients} clients in which rounds they took part"
        f"{'' if audit.named else ', though not who they are'}, and with it the own update of "
        f"{audit.singled_out}. About {audit.expected_right:.1f} of the {audit.separated} are right, as the "
        "attack judges itself."
    )


def remarks(audit: Audit) -> list[str]:
    """What in the log does not fit together."""
    sentences = []
    if audit.sums_alone and audit.sums_alone > audit.separated:
        sentences.append(
            f"The sums alone give {audit.sums_alone} columns away, which is more than with what was given "
            "beside them. Do the counts, or the cohort sizes, belong to these sums? Rounds are counted from "
            "0, stop is the round after the last, and sums stand in the order of their rounds."
        )
    if audit.doubted is not None:
        sentences.append(
            "The counts say more than the cohort sizes hold: updates were lost on the way, or one of the two "
            f"is wrong. So counts were taken with an error of {audit.doubted:.2g}, and nothing is proved."
        )
    return sentences


def advice(audit: Audit) -> list[str]:
    """What would have prevented it, by counting."""
    if not audit.separated:
        return []
    return [
        f"As long as no more rounds are kept than clients take part in them ({audit.num_clients} clients "
        f"here, against {audit.rounds} rounds) sums cannot tell them apart, and only counts that leave no "
        "choice give anybody away.",
        "Clients that only ever take part together are separated as a group at best, whatever the rounds.",
    ]


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
    axes.locator_params(integer=True)
    return figure

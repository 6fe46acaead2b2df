"""The report of a run: one self-contained HTML page, pictures included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import Recovery
from fedsim.trusted.truth import Truth
from scenarios.pages import BACKGROUND, INK, INVENTED, MISSED, UNRECOVERED, embedded, render
from scenarios.run.inference.figures import COLUMNS, figures
from scenarios.run.inference.findings import Findings
from scenarios.run.inference.judges import JUDGES
from scenarios.run.result import Result
from scenarios.run.scoring import named
from scenarios.run.sections import Analytics, Baselines, Disaggregation
from scenarios.run.update_scores import update_cosines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render_report(
    *,
    settings: str,
    result: Result,
    recovery: Recovery,
    truth: Truth,
    findings: Sequence[Findings] = (),
) -> str:
    """The page of a run: its settings (TOML), its figures, the recovery beside the truth, and inferences."""
    if result.disaggregation.pseudonymous:
        recovery = named(recovery, truth)
    position = recovery.clients.astype(np.int64)
    P, guess = truth.participation[:, position], recovery.participation
    cosines = update_cosines(recovery.updates, truth.updates[position])
    return render(
        "report.html.j2",
        result=result,
        settings=settings,
        published=about_counts(result.analytics),
        bars=embedded(_draw_bars(result.disaggregation)),
        matrices=embedded(_draw_matrices(P, guess)),
        similarities=embedded(_draw_similarities(cosines, result.disaggregation.baselines)),
        clients=_client_rows(recovery, P, cosines),
        columns=COLUMNS,
        figures=figures(result),
        pictures={found.key: embedded(JUDGES[found.kind].draw(found)) for found in findings},
    )


def about_counts(analytics: Analytics) -> str:
    """The published counts in one sentence or two."""
    if analytics.count_error is None or analytics.mean_window is None:
        return "No counts were published."
    window = f"one per client every {analytics.mean_window:.3g} rounds"
    if analytics.count_error == 0:
        quality = f"Counts are exact: {window}."
    else:
        quality = f"Counts have a mean error of {analytics.count_error:.2f}: {window}."
    if analytics.missing_fraction == 0:
        return quality
    return f"{quality} {100 * analytics.missing_fraction:.1f} % of the clients' rounds have no count."


def _client_rows(
    recovery: Recovery, P: NDArray[np.uint8], cosines: NDArray[np.float64]
) -> list[dict[str, Any]]:
    return [
        {
            "id": recovery.clients[k],
            "outcome": str(recovery.outcome[k]),
            "confidence": recovery.confidence[k],
            "reason": str(recovery.reason[k]),
            "rounds": int(P[:, k].sum()),
            "wrong": int((recovery.participation[:, k] != P[:, k]).sum()),
            "cosine": cosines[k],
        }
        for k in range(len(recovery.clients))
    ]


def _draw_bars(found: Disaggregation) -> Figure:
    """Guess, attack and ceiling, for participations and for whole columns."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    base, best = found.baselines, found.ceiling
    groups = {
        "participations found": (
            base.counts_only_ones_found,
            found.ones_found,
            best.ones_found if best else None,
        ),
        "columns exactly right": (
            base.counts_only_exact_fraction,
            found.exact_fraction,
            best.exact_fraction if best else None,
        ),
    }
    # Narrow, so that its words can be read on a phone.
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    colours = {"guess": UNRECOVERED, "attack": INK, "ceiling": INVENTED}
    axes = figure.subplots()
    for row, values in enumerate(groups.values()):
        for bar, (value, colour) in enumerate(zip(values, colours.values(), strict=True)):
            place = row + 0.27 * (bar - 1)
            if value is not None:
                axes.barh(place, value, height=0.24, color=colour)
            axes.text((value or 0) + 0.005, place, _share(value), va="center", fontsize=10)
    axes.set(xlim=(0, 1.12), yticks=range(len(groups)), yticklabels=list(groups))
    axes.invert_yaxis()
    axes.tick_params(labelsize=11)
    patches = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=patches, fontsize=10, loc="outside upper center", ncols=3)
    return figure


def _share(value: float | None) -> str:
    return "not computed" if value is None else f"{value:.3f}"


def _draw_matrices(P: NDArray[np.uint8], guess: NDArray[np.uint8]) -> Figure:
    """True matrix, recovered matrix and their difference, clients across and rounds down."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    unknown = guess > 1
    recovered = np.where(unknown, 2, guess)
    # 0 both agree, 1 missed, 2 invented, 3 nothing recovered
    difference = np.where(unknown, 3, np.where(guess < P, 1, np.where(guess > P, 2, 0)))
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    pictures: Sequence[tuple[str, NDArray[Any], list[str]]] = (
        ("true participation", P, [BACKGROUND, INK]),
        ("recovered from sums and counts", recovered, [BACKGROUND, INK, UNRECOVERED]),
        ("difference", difference, ["white", MISSED, INVENTED, UNRECOVERED]),
    )
    for axes, (title, matrix, colours) in zip(figure.subplots(1, 3, sharey=True), pictures, strict=True):
        axes.imshow(
            matrix,
            cmap=ListedColormap(colours),
            vmin=0,
            vmax=len(colours) - 1,
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("client")
        axes.locator_params(integer=True)
    figure.axes[0].set_ylabel("round")
    names = ("missed", "invented", "nothing recovered")
    patches = [Patch(color=c, label=n) for c, n in zip((MISSED, INVENTED, UNRECOVERED), names, strict=True)]
    # Outside the picture, where it hides no errors.
    figure.legend(handles=patches, fontsize=8, loc="outside lower right", ncols=3)
    return figure


def _draw_similarities(cosines: NDArray[np.float64], baselines: Baselines) -> Figure:
    """Cosine of recovered and true update per client, with the two baselines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.arange(len(cosines)), np.nan_to_num(cosines), color=INK, width=0.8)
    axes.axhline(baselines.oracle_update_cosine, color=INVENTED, label="oracle: who took part is known")
    axes.axhline(baselines.aggregate_update_cosine, color=MISSED, ls="--", label="mean aggregate: no attack")
    axes.set(
        xlabel="client",
        ylabel="cosine",
        xlim=(-0.8, len(cosines) - 0.2),
        ylim=(min(0, np.nanmin([0, *cosines])), 1.05),
    )
    axes.legend(fontsize=8, loc="lower right")
    return figure

"""The report of a run: one self-contained HTML page that tells its story, charts included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import Recovery
from fedsim.trusted.truth import Truth
from scenarios.charts import (
    CEILING,
    GUESS,
    INK,
    INVENTED,
    MISSED,
    MOST_MARKS,
    NOTHING,
    ORACLE,
    Spec,
    chart,
    coloured,
    layer,
    line_at,
    name,
    number,
    participations,
    told,
)
from scenarios.pages import picture, render
from scenarios.run.curves import curves, traffic
from scenarios.run.inference.figures import COLUMNS, figures
from scenarios.run.inference.findings import Findings
from scenarios.run.inference.judges import JUDGES
from scenarios.run.result import Result
from scenarios.run.scoring import named
from scenarios.run.sections import Analytics, Baselines, Disaggregation
from scenarios.run.story import message
from scenarios.run.update_scores import update_cosines


def render_report(
    *,
    settings: str,
    result: Result,
    recovery: Recovery,
    truth: Truth,
    findings: Sequence[Findings] = (),
    history: Sequence[Mapping[str, float]] = (),
    pace: Sequence[Mapping[str, float]] = (),
) -> str:
    """The page of a run: its settings (TOML), its figures, the recovery beside the truth, and inferences."""
    found = result.disaggregation
    if found.pseudonymous:
        recovery = named(recovery, truth)
    position = recovery.clients.astype(np.int64)
    P, guess = truth.participation[:, position], recovery.participation
    cosines = update_cosines(recovery.updates, truth.updates[position])
    return render(
        "report.html.j2",
        result=result,
        message=message(result),
        settings=settings,
        published=about_counts(result.analytics),
        metric=_metric(result, settings),
        nothing=set(found.outcomes) == {"unresolved"},
        separated=int(np.isfinite(cosines).sum()),
        bars=_bars(found),
        matrix=_matrix(recovery.clients, P, guess),
        similarities=_similarities(recovery.clients, cosines, found.baselines),
        clients=_client_rows(recovery, P, cosines),
        times=list(_times(result)),
        curves=curves(history, result.training.metric),
        traffic=traffic(history, pace),
        columns=COLUMNS,
        inferences=list(_inferences(result, findings)),
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


def _inferences(result: Result, findings: Sequence[Findings]) -> Iterator[dict[str, Any]]:
    """Every inference attack with its rows, and its guesses as its judge shows them."""
    by_key = {found.key: found for found in findings}
    for key, rows in figures(result).items():
        judge = JUDGES[result.scores[key].kind]
        shown = judge.show(by_key[key]) if key in by_key else ""
        yield {"key": key, "rows": rows, "shown": shown, "vivid": judge.vivid, "meaning": judge.meaning}


def _metric(result: Result, settings: str) -> dict[str, str]:
    """The figure of merit of the server's model, by the name that its task gives it."""
    fixed = 'server_model = "fixed"' in settings
    return {
        "title": f"test {result.training.metric}",
        "value": f"{100 * result.training.test_accuracy:.1f} %",
        "note": "the server's model is fixed, so this is the accuracy of the first model" if fixed else "",
    }


def _times(result: Result) -> Iterator[tuple[str, float]]:
    yield f"simulation, {result.simulation.rounds} rounds", result.simulation.seconds
    yield f"disaggregation, solver {result.disaggregation.solver}", result.disaggregation.seconds
    for key, score in result.scores.items():
        if score.seconds:
            yield f"inference, {key}", sum(score.seconds.values())
    if result.inference is not None:
        yield "all inference attacks with their scoring, CPU time", result.inference.cpu_seconds


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


def _bars(found: Disaggregation) -> Spec:
    """Guess, attack and ceiling, for participations and for whole columns."""
    base, best = found.baselines, found.ceiling
    groups = {
        "participations found": (base.counts_only_ones_found, found.ones_found, best and best.ones_found),
        "columns exactly right": (
            base.counts_only_exact_fraction,
            found.exact_fraction,
            best and best.exact_fraction,
        ),
    }
    colours = {"guess": GUESS, "attack": INK, "ceiling": CEILING}
    rows = [
        {
            "figure": figure,
            "of": of,
            "share": value or 0,
            "said": "not computed" if value is None else f"{value:.3f}",
        }
        for figure, values in groups.items()
        for of, value in zip(colours, values, strict=True)
    ]
    places = {
        "y": name("figure", axis={"labelLimit": 130, "ticks": False, "domain": False}),
        "yOffset": name("of"),
        "x": number(
            "share", "share", scale={"domain": [0, 1.1]}, axis={"values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
        ),
    }
    told_of = told(figure="figure", of="by", said="share")
    bars = layer(rows, "bar", **places, color=coloured("of", colours), tooltip=told_of)
    labels = layer(rows, {"type": "text", "align": "left", "dx": 4}, **places, text="said")
    return chart(bars, labels, height=170)


def _matrix(clients: NDArray[Any], P: NDArray[np.uint8], guess: NDArray[np.uint8]) -> dict[str, Any]:
    """Participations found, missed and invented; a chart, or a picture if there are too many."""
    colours = {"found": INK, "missed": MISSED, "invented": INVENTED, "nothing recovered": NOTHING}
    unknown = guess > 1
    # 0 both agree that the client was absent.
    kind = np.select(
        [unknown & (P == 1), unknown, (P == 1) & (guess == 1), P == 1, guess == 1], [4, 0, 1, 2, 3], 0
    )
    rounds, columns = np.nonzero(kind)
    if len(rounds) > MOST_MARKS:
        palette = [
            (0, 0, 0, 0),
            (31, 90, 150, 255),
            (209, 73, 91, 255),
            (237, 174, 73, 255),
            (150, 150, 150, 255),
        ]
        return {"spec": None, "picture": picture(np.array(palette, dtype=np.uint8)[kind])}
    names = list(colours)
    rows = [
        {"client": str(clients[k]), "round": int(r), "kind": names[kind[r, k] - 1]}
        for r, k in zip(rounds, columns, strict=True)
    ]
    return {"spec": participations(rows, [str(c) for c in clients], len(P), colours), "picture": ""}


def _similarities(clients: NDArray[Any], cosines: NDArray[np.float64], baselines: Baselines) -> Spec:
    """Cosine of recovered and true update per client, with the two baselines."""
    of, oracle, mean = "attack", "oracle: who took part is known", "mean aggregate: no attack"
    colours = {of: INK, oracle: ORACLE, mean: MISSED}
    rows = [
        {"client": str(k), "cosine": round(float(x), 4), "label": of}
        for k, x in zip(clients, cosines, strict=True)
        if np.isfinite(x)
    ]
    low = min(0.0, np.nanmin(cosines)) if rows else 0.0
    bars = layer(
        rows,
        "bar",
        x=name(
            "client",
            "client",
            axis={"labelAngle": 0, "labelOverlap": True},
            scale={"domain": [str(k) for k in clients]},
        ),
        y=number("cosine", "cosine", scale={"domain": [low, 1]}),
        color=coloured("label", colours),
        tooltip=told(client="client", cosine="cosine"),
    )
    return chart(
        bars,
        line_at(baselines.oracle_update_cosine, oracle, colours),
        line_at(baselines.aggregate_update_cosine, mean, colours),
    )

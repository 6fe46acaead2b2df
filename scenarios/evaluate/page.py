"""The page of an evaluation: the frontier, a sentence and a row per defence, and links to every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scenarios.evaluate.evaluation import Evaluation
from scenarios.evaluate.figures import ACCURACY, SINGLED_OUT, SINGLED_OUT_CEILING, UTILITY
from scenarios.evaluate.outcome import Outcome, columns
from scenarios.evaluate.sentences import sentence
from scenarios.evaluate.verdict import COUNTS_TELL, NEAR_GUESS, Verdict
from scenarios.pages import embedded, render
from scenarios.run.scenario import Scenario
from scenarios.sweep.code import other_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.run import PointResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def render_evaluation(evaluation: Evaluation, outcomes: Sequence[Outcome], directory: SweepDirectory) -> str:
    """One self-contained page."""
    none, *defended = outcomes
    shown = columns(outcomes)
    return render(
        "evaluation.html.j2",
        title=evaluation.file.title,
        seeds=evaluation.file.seeds,
        fixed=_is_fixed(evaluation),
        others=other_code(result.code for outcome in outcomes for result in outcome.results),
        picture=embedded(draw(outcomes)) if any(o.figures for o in outcomes) else "",
        sentences=[sentence(outcome, none) for outcome in defended],
        verdicts=[(o.name, verdict) for o in outcomes if (verdict := Verdict.of(o)) is not None],
        near=NEAR_GUESS,
        counts_tell=COUNTS_TELL,
        tables=[
            _table(
                "What it stops", {key: name for key, name in shown.items() if key not in UTILITY}, outcomes
            ),
            _table("What it costs", {key: name for key, name in shown.items() if key in UTILITY}, outcomes),
        ],
        runs=[(o.name, [_run(result, directory) for result in o.results]) for o in outcomes],
    )


def _table(title: str, shown: Mapping[str, str], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    rows = [
        (outcome.name, [str(outcome.figures[key]) if key in outcome.figures else "–" for key in shown])
        for outcome in outcomes
    ]
    return {"title": title, "headings": list(shown.values()), "rows": rows}


def _is_fixed(evaluation: Evaluation) -> bool:
    settings = evaluation.sweep.points[0].settings
    return isinstance(settings, Scenario) and settings.federation.server_model == "fixed"


def _run(result: PointResult, directory: SweepDirectory) -> dict[str, Any]:
    report = directory.point(result.point).report.relative_to(directory.path).as_posix()
    return {"seed": result.point.settings.seed, "link": report, "reason": result.reason}


def leakage(outcome: Outcome) -> float:
    """Share of clients that can be singled out: at best, or if there is no ceiling, by our attack."""
    figures = outcome.figures
    return figures.get(SINGLED_OUT_CEILING, figures[SINGLED_OUT]).mean


def frontier(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that no other beats in both leakage and accuracy, from the least leakage upwards."""
    placed = sorted(
        (o for o in outcomes if SINGLED_OUT in o.figures and ACCURACY in o.figures),
        key=lambda o: (leakage(o), -o.figures[ACCURACY].mean),
    )
    best: list[Outcome] = []
    for outcome in placed:
        if not best or outcome.figures[ACCURACY].mean > best[-1].figures[ACCURACY].mean:
            best.append(outcome)
    return best


def draw(outcomes: Sequence[Outcome]) -> Picture:
    """Clients singled out against test accuracy: attack and ceiling; the line joins the frontier."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(10, 5), layout="constrained")
    axes = picture.subplots()
    line = [(leakage(o), o.figures[ACCURACY].mean) for o in frontier(outcomes)]
    axes.plot(*zip(*line, strict=True), color="#b8b8b8", lw=1, zorder=0) if line else None
    for number, outcome in enumerate(outcomes):
        if SINGLED_OUT in outcome.figures and ACCURACY in outcome.figures:
            leak, accuracy = outcome.figures[SINGLED_OUT], outcome.figures[ACCURACY]
            marker, colour = "os^"[number // 10 % 3], f"C{number % 10}"
            best = outcome.figures.get(SINGLED_OUT_CEILING)
            if best is not None:
                axes.plot((leak.mean, best.mean), (accuracy.mean,) * 2, color=colour, lw=0.8, ls=":")
                axes.plot(best.mean, accuracy.mean, marker=marker, ls="", mfc="none", color=colour)
            axes.errorbar(
                leak.mean,
                accuracy.mean,
                xerr=leak.half_width,
                yerr=accuracy.half_width,
                marker=marker,
                ls="",
                capsize=2,
                elinewidth=0.8,
                color=colour,
                label=outcome.name,
            )
    axes.set(
        xlabel="leakage: clients singled out (filled: by our attack; hollow: ceiling)",
        ylabel="utility: test accuracy",
        xlim=(-0.05, 1.05),
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return picture

"""The page of an evaluation: the frontier, a sentence and a row per defence, and links to every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.evaluate.evaluation import Evaluation
from scenarios.evaluate.figures import SHARES, UTILITY
from scenarios.evaluate.outcome import Outcome, columns
from scenarios.evaluate.recommendation import in_short, recommendation
from scenarios.evaluate.sentences import sentence
from scenarios.evaluate.trade_offs import frontier, trade_offs
from scenarios.evaluate.verdict import COUNTS_TELL, NEAR_GUESS, Verdict
from scenarios.pages import render
from scenarios.run.result import Result
from scenarios.run.scenario import Scenario
from scenarios.sweep.code import other_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.run import PointResult


def render_evaluation(evaluation: Evaluation, outcomes: Sequence[Outcome], directory: SweepDirectory) -> str:
    """One self-contained page."""
    none, *defended = outcomes
    shown = columns(outcomes)
    metric = metric_of(outcomes)
    return render(
        "evaluation.html.j2",
        title=evaluation.file.title,
        seeds=evaluation.file.seeds,
        fixed=_is_fixed(evaluation),
        others=other_code(result.other_code for outcome in outcomes for result in outcome.results),
        metric=metric,
        recommendation=recommendation(outcomes),
        in_short=[in_short(outcome, none) for outcome in defended],
        trade_offs=trade_offs(outcomes, metric) if any(o.figures for o in outcomes) else None,
        frontier=[o.name for o in frontier(outcomes)],
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
        (
            outcome.name,
            [
                outcome.figures[key].shown(share=key in SHARES) if key in outcome.figures else "–"
                for key in shown
            ],
        )
        for outcome in outcomes
    ]
    return {"title": title, "headings": list(shown.values()), "rows": rows}


def _is_fixed(evaluation: Evaluation) -> bool:
    settings = evaluation.sweep.points[0].settings
    return isinstance(settings, Scenario) and settings.federation.server_model == "fixed"


def _run(result: PointResult, directory: SweepDirectory) -> dict[str, Any]:
    report = directory.point(result.point).report.relative_to(directory.path).as_posix()
    return {"seed": result.point.settings.seed, "link": report, "reason": result.reason}


def metric_of(outcomes: Sequence[Outcome]) -> str:
    """The name that the task gives to its figure of merit."""
    results = (result.figures for outcome in outcomes for result in outcome.results)
    return next((found.training.metric for found in results if isinstance(found, Result)), "accuracy")

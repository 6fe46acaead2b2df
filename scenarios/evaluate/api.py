"""Evaluations from Python: `fedsim.evaluate`; the command calls the same code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.core.files import write_text
from scenarios.api_results import Findings, html_table
from scenarios.console import progress_bars
from scenarios.evaluate.evaluation import Evaluation
from scenarios.evaluate.figures import ACCURACY, SINGLED_OUT
from scenarios.evaluate.outcome import Outcome, table
from scenarios.evaluate.outcome import evaluate as evaluate_defences
from scenarios.evaluate.page import render_evaluation
from scenarios.evaluate.recommendation import recommendation
from scenarios.evaluate.sentences import sentence
from scenarios.evaluate.verdict import Verdict
from scenarios.run.library import found_in_library
from scenarios.run.overrides import Overrides
from scenarios.sweep.api import at_work
from scenarios.sweep.run import check_worlds
from scenarios.sweep.table import write_table
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class EvaluationResult(Findings):
    """An evaluation that has run: an outcome per defence, the undefended base first."""

    folder: Path
    plan: Evaluation
    outcomes: tuple[Outcome, ...]

    @property
    def page(self) -> Path:
        """The page of the evaluation."""
        return self.folder / "evaluation.html"

    @property
    def verdicts(self) -> dict[str, str]:
        """What is to be said of each defence: stopped, held against our attack, or leaks."""
        found = {outcome.name: Verdict.of(outcome) for outcome in self.outcomes}
        return {name: verdict.form for name, verdict in found.items() if verdict is not None}

    @property
    def sentences(self) -> list[str]:
        """A sentence per defence, compared with the undefended base."""
        return [sentence(outcome, self.outcomes[0]) for outcome in self.outcomes[1:]]

    @property
    def recommendation(self) -> str:
        """Which defence to choose, in words."""
        return recommendation(self.outcomes)

    def rows(self) -> Sequence[Row]:
        """A row per defence and figure: mean, half width of its 95 % interval, and number of seeds."""
        return table(self.outcomes)

    def draw(self, axes: Axes) -> None:
        """Clients that our attack singles out against test accuracy, a point per defence."""
        for outcome in self.outcomes:
            if SINGLED_OUT in outcome.figures and ACCURACY in outcome.figures:
                place = outcome.figures[SINGLED_OUT].mean, outcome.figures[ACCURACY].mean
                axes.plot(*place, "o")
                axes.annotate(outcome.name, place, xytext=(4, 4), textcoords="offset points", fontsize=8)
        axes.set(xlabel="clients singled out by our attack", ylabel="test accuracy", xlim=(-0.05, 1.05))

    def _repr_html_(self) -> str:
        rows = [
            {
                "defence": outcome.name,
                "verdict": self.verdicts.get(outcome.name),
                "clients singled out": outcome.mean(SINGLED_OUT),
                "test accuracy": outcome.mean(ACCURACY),
            }
            for outcome in self.outcomes
        ]
        return html_table(rows, title=self.plan.file.title, page=self.page)


def evaluate(
    file: str | Path,
    *,
    out: str | Path | None = None,
    overrides: Overrides = (),
    workers: int | None = None,
    ray: bool = False,
    fresh: bool = False,
    progress: bool = True,
) -> EvaluationResult:
    """Compare defences, as `fedsim evaluate` does: what each stops, and what it costs.

    `file` is an evaluation file or a name from the library. Finished runs are kept.
    """
    path = found_in_library(str(file), "evaluation")
    plan = Evaluation.load(path, overrides)
    folder = Path(out) if out is not None else Path("runs") / path.stem
    with one_thread(), progress_bars(shown=progress) as bar:
        check_worlds(plan.sweep, folder, bar("checking"), fresh=fresh)
        with at_work(folder, workers, ray=ray) as (directory, pool):
            outcomes = evaluate_defences(plan, directory, pool, bar("points"), fresh=fresh)
    found = EvaluationResult(folder, plan, tuple(outcomes))
    if rows := found.rows():
        write_table(rows, folder / "evaluation.csv")
    write_text(found.page, render_evaluation(plan, outcomes, directory))
    return found

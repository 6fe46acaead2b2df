"""Disaggregation of arrays from Python: `fedsim.disaggregate`, without a scenario and without files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from attacks.disaggregation import ProblemError, Recovery
from attacks.disaggregation import disaggregate as disaggregate_problem
from attacks.disaggregation.solvers import AbstractSolver
from attacks.reconciliation import posed_problem
from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream
from scenarios.api_results import Findings, html_table
from scenarios.audit.files import client_rows
from scenarios.audit.page import draw_on
from scenarios.console import progress_bars
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Disaggregation(Findings):
    """What an attack on sums recovered: a column, an outcome and an update per client."""

    recovery: Recovery

    @property
    def participation(self) -> NDArray[np.uint8]:
        """(rounds, clients) zeros and ones; 255 where the attack has no guess."""
        return self.recovery.participation

    @property
    def updates(self) -> NDArray[np.float32]:
        """(clients, entries); NaN for clients whose update was not recovered."""
        return self.recovery.updates

    def rows(self) -> Sequence[Row]:
        """A row per client: outcome, confidence, number of rounds, and the reason of a failure."""
        return client_rows(self.recovery)

    def draw(self, axes: Axes) -> None:
        """Recovered participation, clients across and rounds down; grey where nothing was recovered."""
        draw_on(axes, self.recovery)

    def _repr_html_(self) -> str:
        return html_table(self.rows(), title=f"Disaggregation by {self.recovery.solver}", most=10)


def disaggregate(
    aggregates: Any,
    counts: ParticipationReport | None = None,
    *,
    clients: int | None = None,
    cohort_sizes: Any = None,
    solver: str | AbstractSolver = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Disaggregation:
    """Who took part when, and each client's own update, from sums and counts.

    `aggregates` (rounds, entries) are the sums. `counts` say how often clients took part in windows of
    rounds; `analytics.windowed_counts` makes them from a matrix. Without counts, columns have no names.
    `clients` is the number of clients, if the counts do not name all of them. This runs in the calling
    process: use `fedsim.run` or `fedsim.attack` to keep the truth of an experiment out of reach.
    """
    sums = np.ascontiguousarray(aggregates)
    if sums.ndim != 2:
        raise UserError(f"aggregates: expected a table, rounds × entries, got {sums.ndim} dimensions")
    sizes = None if cohort_sizes is None else np.asarray(cohort_sizes)
    try:
        with one_thread(), progress_bars(shown=progress) as bar:
            problem = posed_problem(sums, counts, num_clients=clients, cohort_sizes=sizes)
            rng = stream(seed, Stage.ATTACK)
            return Disaggregation(disaggregate_problem(problem, solver, rng=rng, progress=bar("solving")))
    except ProblemError as error:
        raise UserError(str(error)) from error

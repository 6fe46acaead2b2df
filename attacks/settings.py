"""The attack section of a scenario, and the attack itself: disaggregate what the view holds."""

from __future__ import annotations

import numpy as np

from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.solvers import Auto, Solver
from attacks.reconciliation import reconciled
from attacks.view import AttackerView
from fedsim.progress import Progress, silent
from fedsim.settings import Settings


class AttackSettings(Settings):
    """Which solver recovers the participation matrix, with its settings."""

    solver: Solver = Auto()

    def run(self, view: AttackerView, *, rng: np.random.Generator, progress: Progress = silent) -> Recovery:
        """Recover participation and updates from the view, and from nothing but the view."""
        transcript = view.transcript
        counts = reconciled(view.counts, transcript.cohort_sizes) if len(view.counts.clients) else None
        problem = DisaggregationProblem(
            transcript.aggregates,
            counts,
            cohort_sizes=transcript.cohort_sizes,
            layer_shapes=transcript.layer_shapes,
        )
        return disaggregate(problem, self.solver, rng=rng, progress=progress)

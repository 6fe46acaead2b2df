"""The attack section of a scenario, and its first half: disaggregate what the view holds."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt

from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.solvers import Auto, Solver
from attacks.inference import Inference
from attacks.reconciliation import reconciled
from attacks.view import AttackerView
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings


class AttackSettings(Settings):
    """Which solver recovers the participation matrix, and what is then inferred from the updates."""

    solver: Solver = Auto()
    auxiliary_images: NonNegativeInt = 0
    """How many test examples, which nobody trains on, the scenario grants the attacker."""
    inference: Annotated[tuple[Inference, ...], Field(strict=False)] = ()

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

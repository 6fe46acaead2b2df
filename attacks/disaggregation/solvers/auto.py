"""The default: the solver that suits the problem."""

from __future__ import annotations

from typing import Literal

import numpy as np

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.recovery import Columns
from attacks.disaggregation.solvers.projection import Projection
from attacks.disaggregation.subspace import Subspace
from fedsim.progress import Progress, silent
from fedsim.settings import Settings


class Auto(Settings):
    """Projections for every problem."""

    name: Literal["auto"] = "auto"

    def solve(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        """A column and an outcome for every client; see `Columns`."""
        return Projection().solve(problem, subspace, rng=rng, progress=progress)

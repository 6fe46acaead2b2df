"""The attack section of a scenario, and its first half: disaggregation."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt

from attacks.device_products import gram_on
from attacks.disaggregation import Recovery, disaggregate
from attacks.disaggregation.solvers import Auto, Solver
from attacks.inference import Inference
from attacks.view import AttackerView
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings


class AttackSettings(Settings):
    """Which solver recovers the participation matrix, and what is then inferred from the updates."""

    solver: Solver = Auto()
    auxiliary_images: NonNegativeInt = 0
    """Test examples that the attacker has; no client trains on them."""
    inference: Annotated[tuple[Inference, ...], Field(strict=False)] = ()

    def run(
        self,
        view: AttackerView,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
        device: str = "cpu",
    ) -> Recovery:
        """Recover participation and updates from the view, and from nothing but the view.

        Gram matrices are computed on the `device` with torch's name.
        """
        with gram_on(device):
            return disaggregate(view.problem(), self.solver, rng=rng, progress=progress)

"""The contract of a solver: what it needs, what it promises, and one method."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.recovery import Columns
from fedsim.core.plugins import PlugIn
from fedsim.core.progress import Progress, silent


class AbstractSolver(PlugIn):
    """A frozen settings object that finds participation columns.

    A subclass adds its settings as fields and declares the class attributes that have no default. A solver
    whose `needs_counts` is not met is refused before any work. The contract tests run over every member of
    the union `Solver`.
    """

    needs_counts: ClassVar[bool]
    """Whether the solver works only if at least one count is known. Otherwise it also works on sums alone."""
    models_noise: ClassVar[bool]
    """Whether the solver has a model of noise in the sums. One that assumes exact sums may still find columns
    under mild noise; but its failure says little, and the columns that it leaves unresolved say so."""
    needs_zero_rows: ClassVar[bool] = False
    """Whether the solver works only if rows of the sums are exactly zero in some rounds and not in others. In
    other sums it finds no more than the counts tell."""
    can_prove: ClassVar[bool]
    """Whether an outcome can be `proved`, given a problem that allows proofs: see `proof`."""

    @abstractmethod
    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """Return a column and an outcome for every client of the instance, in its order.

        Without counts a client is a pseudonym, the order means nothing, and the solver chooses the number of
        columns. The same instance and `rng` state give the same columns, unless a time limit ends a search.
        """

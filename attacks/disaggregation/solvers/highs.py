"""Exact recovery of one column after the other with HiGHS, which ships with SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.solvers.column_program import (
    SOFT_COUNT_WEIGHT,
    ColumnProgram,
    ColumnSolver,
    other_than,
)

OPTIMAL, INFEASIBLE = 0, 2
"""SciPy's codes for a search that finished."""


class Highs(ColumnSolver):
    """Least L1 distance to the column space, by branch and bound (HiGHS has no integer quadratics).

    `time_limit_s` is the limit for one column. With `prove`, a second search shows that no other column with
    the counts lies in the space; it takes at most as long again.
    """

    name: Literal["highs"] = "highs"

    @contextmanager
    def backend(self) -> Iterator[_Highs]:
        """SciPy needs no session."""
        yield _Highs(self.time_limit_s)


@dataclass(frozen=True)
class _Highs:
    time_limit_s: float

    @contextmanager
    def build(self, program: ColumnProgram) -> Iterator[_Milp]:
        yield _Milp(program, self.time_limit_s)


@dataclass(frozen=True)
class _Milp:
    program: ColumnProgram
    time_limit_s: float

    def nearest(self, start: NDArray[np.uint8] | None) -> tuple[NDArray[np.uint8] | None, bool]:
        """SciPy takes no first guess: `start` is ignored."""
        return self._solved(besides=None)

    def bound_besides(self, column: NDArray[np.uint8]) -> float:
        other, finished = self._solved(besides=column)
        return np.inf if other is None and finished else 0.0

    def _solved(self, *, besides: NDArray[np.uint8] | None) -> tuple[NDArray[np.uint8] | None, bool]:
        """The best column, or None, and whether the search finished; never the column `besides`.

        Variables: p, then a bound on the absolute value of each component outside the space and of each noisy
        count's misfit. In an exact space the components are bounded by its tolerance instead.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, eye_array, hstack

        program = self.program
        V, S = program.complement, program.soft_windows
        rounds, outside = V.shape
        slack = 0 if program.tolerance is not None else outside + len(S)
        constraints = []
        if program.tolerance is not None:
            constraints.append(LinearConstraint(V.T, -program.tolerance, program.tolerance))
        else:
            components, above = csr_array(np.concatenate((V.T, S))), eye_array(slack)
            target = np.concatenate((np.zeros(outside), program.soft_counts))
            constraints.append(LinearConstraint(hstack((components, above)), lb=target))
            constraints.append(LinearConstraint(hstack((components, -above)), ub=target))
        if len(program.counts):
            counted = hstack((csr_array(program.windows), csr_array((len(program.windows), slack))))
            constraints.append(LinearConstraint(counted, program.counts, program.counts))
        if besides is not None:
            a, b = other_than(besides)
            constraints.append(LinearConstraint(np.concatenate((a, np.zeros(slack)))[None], lb=b))
        weights = np.concatenate((np.ones(outside), np.full(len(S), SOFT_COUNT_WEIGHT)))[:slack]
        result = milp(
            c=np.concatenate((np.zeros(rounds), weights)),
            integrality=np.concatenate((np.ones(rounds), np.zeros(slack))),
            bounds=Bounds(
                np.concatenate((program.lower, np.zeros(slack))),
                np.concatenate((program.upper, np.full(slack, np.inf))),
            ),
            constraints=constraints,
            options={"time_limit": self.time_limit_s},
        )
        column = None if result.x is None else np.round(result.x[:rounds]).astype(np.uint8)
        return column, result.status in (OPTIMAL, INFEASIBLE)

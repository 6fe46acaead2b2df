"""Exact recovery of one column after the other with HiGHS, which ships with SciPy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.proof.identifiability import out_of_reach
from attacks.disaggregation.proof.verdict import Candidates, judge
from attacks.disaggregation.recovery import Columns
from attacks.disaggregation.solvers.column_program import (
    COUNT_WEIGHT,
    ColumnProgram,
    orthogonal_complement,
    other_than,
    rounding_tolerance,
)
from attacks.disaggregation.space.subspace import Subspace
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings

OPTIMAL, INFEASIBLE = 0, 2
"""SciPy's codes for a search that came to its end."""


class Highs(Settings):
    """Least L1 distance to the column space, by branch and bound (HiGHS has no integer quadratics).

    `time_limit_s` is for one column. With `prove`, a second search shows that no other column with the
    counts lies in the space; it takes at most as long again.
    """

    name: Literal["highs"] = "highs"
    time_limit_s: PositiveFloat = 60.0
    prove: bool = True

    def solve(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        """A column and an outcome for every client; see `Columns`. Uses no randomness."""
        found = Candidates.none(problem)
        rows = np.flatnonzero(~out_of_reach(problem, subspace))
        complement, tolerance = orthogonal_complement(subspace), rounding_tolerance(problem, subspace)
        for done, client in enumerate(rows):
            progress(done, len(rows))
            program = ColumnProgram.of(problem, complement, int(client), tolerance=tolerance)
            column, finished = _nearest(program, self.time_limit_s)
            if column is None:
                found.reason[client] = _no_column(finished, self.time_limit_s)
                continue
            found.offer(np.array([client]), column[None], np.array([program.distance(column)]))
            if not finished:
                found.reason[client] = (
                    f"best column of highs after {self.time_limit_s:g} s; the search had not ended"
                )
            elif self.prove and tolerance is not None:
                other, finished = _nearest(program, self.time_limit_s, besides=column)
                found.proved[client] = other is None and finished
        return judge(problem, subspace, found, solver=self.name, prove=self.prove)


def _no_column(finished: bool, time_limit_s: float) -> str:
    return "no column has the counts" if finished else f"highs found no column within {time_limit_s:g} s"


def _nearest(
    program: ColumnProgram, time_limit_s: float, *, besides: NDArray[np.uint8] | None = None
) -> tuple[NDArray[np.uint8] | None, bool]:
    """The column, if there is one, and whether the search came to its end.

    Variables: p, then a bound on the absolute value of each component outside the space and of each noisy
    count's misfit. In an exact space the components are bounded by its tolerance instead.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack

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
    weights = np.concatenate((np.ones(outside), np.full(len(S), COUNT_WEIGHT)))[:slack]
    result = milp(
        c=np.concatenate((np.zeros(rounds), weights)),
        integrality=np.concatenate((np.ones(rounds), np.zeros(slack))),
        bounds=Bounds(
            np.concatenate((program.lower, np.zeros(slack))),
            np.concatenate((program.upper, np.full(slack, np.inf))),
        ),
        constraints=constraints,
        options={"time_limit": time_limit_s},
    )
    column = None if result.x is None else np.round(result.x[:rounds]).astype(np.uint8)
    return column, result.status in (OPTIMAL, INFEASIBLE)

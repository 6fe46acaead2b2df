"""Exact recovery of one column after the other with Gurobi: the paper's own method."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.proof.identifiability import out_of_reach
from attacks.disaggregation.proof.verdict import Candidates, excludes, judge
from attacks.disaggregation.recovery import UNKNOWN, Columns
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

TOO_LARGE = 10010
"""Gurobi's error for a model beyond what the licence allows."""


class Gurobi(Settings):
    """The paper's program: min pᵀ(I − UUᵀ)p over binary p with the counts, noisy counts as a soft term.

    Without a licence Gurobi takes up to 2000 variables, 200 if the objective is quadratic; a larger problem
    comes back unresolved and says so. Without any noise `form` "auto" asks for distance zero, which is a
    linear program, instead of the least distance. `time_limit_s` is for one column. With `prove`, a second
    search shows that no other column is as near; it takes at most as long again.
    """

    name: Literal["gurobi"] = "gurobi"
    form: Literal["auto", "quadratic"] = "auto"
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
        self.search(
            problem, subspace, np.flatnonzero(~out_of_reach(problem, subspace)), found, progress=progress
        )
        return judge(problem, subspace, found, solver=self.name, prove=self.prove)

    def search(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        clients: NDArray[np.intp],
        found: Candidates,
        *,
        progress: Progress = silent,
    ) -> None:
        """Look for the columns of some clients, starting from what was found before."""
        try:
            import gurobipy
        except ImportError:
            found.reason[clients] = "gurobi is not installed: pip install gurobipy"
            return
        complement = orthogonal_complement(subspace)
        tolerance = None if self.form == "quadratic" else rounding_tolerance(problem, subspace)
        try:
            with gurobipy.Env(params={"OutputFlag": 0}) as environment:
                for done, client in enumerate(clients.tolist()):
                    progress(done, len(clients))
                    program = ColumnProgram.of(problem, complement, client, tolerance=tolerance)
                    with _model(environment, program, self.time_limit_s) as model:
                        if (found.columns[client] != UNKNOWN).all():
                            model.update()
                            model.setAttr("Start", model.getVars(), found.columns[client].tolist())
                        self._one(model, program, subspace, client, found)
        except gurobipy.GurobiError as error:
            limited = "the problem is too large for Gurobi's size-limited licence"
            found.reason[clients] = limited if error.errno == TOO_LARGE else f"gurobi: {error}"

    def _one(
        self, model: Any, program: ColumnProgram, subspace: Subspace, client: int, found: Candidates
    ) -> None:
        """Solve one client's model and put what comes of it into `found`."""
        from gurobipy import GRB

        model.optimize()
        finished = model.Status != GRB.TIME_LIMIT
        if model.SolCount == 0:
            limit = f"{self.time_limit_s:g} s"
            found.reason[client] = (
                "no column has the counts" if finished else f"gurobi found no column within {limit}"
            )
            return
        p = model.getVars()[: len(program.lower)]
        column = np.round([variable.X for variable in p]).astype(np.uint8)
        found.offer(np.array([client]), column[None], np.array([program.distance(column)]))
        if not finished:
            found.reason[client] = (
                f"best column of gurobi after {self.time_limit_s:g} s; the search had not ended"
            )
        elif self.prove and subspace.exact and not len(program.soft_counts):
            model.addConstr(_other_than(p, column))
            model.optimize()
            bound = np.inf if model.Status in (GRB.INFEASIBLE, GRB.INF_OR_UNBD) else max(model.ObjBound, 0.0)
            found.proved[client] = excludes(float(np.sqrt(bound)), subspace, len(program.lower))


def _other_than(p: list[Any], column: NDArray[np.uint8]) -> Any:
    from gurobipy import LinExpr

    a, b = other_than(column)
    return LinExpr(a.tolist(), p) >= b


def _model(environment: Any, program: ColumnProgram, time_limit_s: float) -> Any:
    """The program with the distance as its objective, or as a constraint in an exact space."""
    import gurobipy

    model = gurobipy.Model(env=environment)
    model.Params.TimeLimit = time_limit_s
    model.Params.Threads = 1
    p = model.addMVar(len(program.lower), lb=program.lower, ub=program.upper, vtype="B")
    if len(program.counts):
        model.addConstr(program.windows @ p == program.counts)
    V, S, soft = program.complement, program.soft_windows, program.soft_counts
    if program.tolerance is not None:
        model.addConstr(V.T @ p <= program.tolerance)
        model.addConstr(V.T @ p >= -program.tolerance)
        return model
    objective = p @ (V @ V.T) @ p
    if len(soft):
        objective += COUNT_WEIGHT * (p @ (S.T @ S) @ p - 2 * (soft @ S) @ p + float(soft @ soft))
    model.setObjective(objective)
    return model

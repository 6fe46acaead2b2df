"""Exact recovery of one column after the other with Gurobi: the paper's own method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.solvers.column_program import (
    SOFT_COUNT_WEIGHT,
    BackendError,
    ColumnProgram,
    ColumnSolver,
    other_than,
)

TOO_LARGE = 10010
"""Gurobi's error for a model that is larger than the licence allows."""


class Gurobi(ColumnSolver):
    """The paper's program: min pᵀ(I − UUᵀ)p over binary p with the counts, noisy counts as a soft term.

    Without a licence Gurobi takes up to 2000 variables, 200 if the objective is quadratic. A larger problem
    comes back unresolved with that reason. Without any noise `form` "auto" asks for distance zero, which is
    a linear program, instead of the least distance. `time_limit_s` is the limit for one column. With `prove`,
    a second search shows that no other column is as near; it takes at most as long again.
    """

    name: Literal["gurobi"] = "gurobi"
    form: Literal["auto", "quadratic"] = "auto"

    def tolerance(self, instance: Instance) -> float | None:
        """None for the quadratic form, which minimises the distance."""
        return None if self.form == "quadratic" else super().tolerance(instance)

    @contextmanager
    def backend(self) -> Iterator[_Gurobi]:
        """An environment without output, on one thread."""
        try:
            import gurobipy
        except ImportError as error:
            raise BackendError("gurobi is not installed: pip install gurobipy") from error
        try:
            with gurobipy.Env(params={"OutputFlag": 0}) as environment:
                yield _Gurobi(environment, self.time_limit_s)
        except gurobipy.GurobiError as error:
            if error.errno == TOO_LARGE:
                raise BackendError("the problem is too large for Gurobi's size-limited licence") from error
            raise BackendError(f"gurobi: {error}") from error


@dataclass(frozen=True)
class _Gurobi:
    environment: Any
    time_limit_s: float

    @contextmanager
    def build(self, program: ColumnProgram) -> Iterator[_Model]:
        """The distance is the objective, or a constraint in an exact space."""
        import gurobipy

        with gurobipy.Model(env=self.environment) as model:
            model.Params.TimeLimit = self.time_limit_s
            model.Params.Threads = 1
            p = model.addMVar(len(program.lower), lb=program.lower, ub=program.upper, vtype="B")
            if len(program.counts):
                model.addConstr(program.windows @ p == program.counts)
            V, S, soft = program.complement, program.soft_windows, program.soft_counts
            if program.tolerance is not None:
                model.addConstr(V.T @ p <= program.tolerance)
                model.addConstr(V.T @ p >= -program.tolerance)
            else:
                objective = p @ (V @ V.T) @ p
                if len(soft):
                    misfit = p @ (S.T @ S) @ p - 2 * (soft @ S) @ p + float(soft @ soft)
                    objective += SOFT_COUNT_WEIGHT * misfit
                model.setObjective(objective)
            model.update()
            yield _Model(model)


@dataclass(frozen=True)
class _Model:
    model: Any

    def nearest(self, start: NDArray[np.uint8] | None) -> tuple[NDArray[np.uint8] | None, bool]:
        from gurobipy import GRB

        if start is not None:
            self.model.setAttr("Start", self.model.getVars(), start.tolist())
        self.model.optimize()
        finished = self.model.Status != GRB.TIME_LIMIT
        if self.model.SolCount == 0:
            return None, finished
        return np.round([variable.X for variable in self.model.getVars()]).astype(np.uint8), finished

    def bound_besides(self, column: NDArray[np.uint8]) -> float:
        from gurobipy import GRB, LinExpr

        a, b = other_than(column)
        self.model.addConstr(LinExpr(a.tolist(), self.model.getVars()) >= b)
        self.model.optimize()
        if self.model.Status in (GRB.INFEASIBLE, GRB.INF_OR_UNBD):
            return np.inf
        return float(np.sqrt(max(self.model.ObjBound, 0.0)))

"""The attack from sums and counts to columns and updates (the paper's Algorithm 1)."""

from __future__ import annotations

import time

import numpy as np
from pydantic import TypeAdapter, ValidationError

from attacks.disaggregation.problem import DisaggregationProblem, ProblemError
from attacks.disaggregation.recovery import Outcome, Recovery
from attacks.disaggregation.solvers import Solver
from attacks.disaggregation.space.subspace import Subspace, find_subspace
from attacks.disaggregation.updates import least_squares
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import members


def disaggregate(
    problem: DisaggregationProblem,
    solver: str | Solver = "auto",
    *,
    rng: np.random.Generator,
    progress: Progress = silent,
    subspace: Subspace | None = None,
) -> Recovery:
    """Who took part when, and each client's update, from a problem's aggregates and counts.

    `solver` is a solver's settings object, or its name for its default settings. The same problem, solver
    and `rng` state give the same recovery. Whatever cannot be recovered is an outcome with a reason. A caller
    who has the problem's `subspace` already can hand it in: finding it reads all aggregates.
    """
    began = time.perf_counter()
    chosen = _by_name(solver) if isinstance(solver, str) else solver
    space_rng, solver_rng = rng.spawn(2)
    if subspace is None:
        subspace = find_subspace(problem, rng=space_rng)
    columns = chosen.solve(problem, subspace, rng=solver_rng, progress=progress)
    resolved = columns.outcome != Outcome.UNRESOLVED
    averages = (
        np.full(columns.participation.T.shape, np.nan) if problem.counts is None else problem.windows.rates()
    )
    updates = least_squares(problem.aggregates, columns.participation, averages, resolved)
    clients = problem.clients if problem.counts is not None else np.arange(columns.participation.shape[1])
    return Recovery(
        clients=clients,
        participation=columns.participation,
        outcome=columns.outcome,
        confidence=columns.confidence,
        reason=columns.reason,
        updates=updates.values,
        update_error=updates.error,
        solver=columns.solver,
        seconds=time.perf_counter() - began,
    )


def _by_name(name: str) -> Solver:
    adapter: TypeAdapter[Solver] = TypeAdapter(Solver)
    try:
        return adapter.validate_python({"name": name})
    except ValidationError as error:
        raise ProblemError(f"solver: {name!r}, expected one of {', '.join(members(Solver))}") from error

"""The attack from sums and counts to columns and updates (the paper's Algorithm 1)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.problem import DisaggregationProblem, ProblemError
from attacks.disaggregation.recovery import Columns, Outcome, Recovery
from attacks.disaggregation.solvers import AbstractSolver, Solver, unmet_need
from attacks.disaggregation.space.subspace import Subspace
from attacks.disaggregation.sparse.authors import authorship
from attacks.disaggregation.sparse.row_updates import write_rows
from attacks.disaggregation.updates import least_squares
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import members

ASSUMES_NO_NOISE = "this solver assumes sums without noise"


def disaggregate(
    problem: DisaggregationProblem,
    solver: str | AbstractSolver = "auto",
    *,
    rng: np.random.Generator,
    progress: Progress = silent,
    subspace: Subspace | None = None,
) -> Recovery:
    """Who took part when, and each client's update, from a problem's aggregates and counts.

    `solver` is a solver's settings object, or its name for its default settings. The same problem, solver
    and `rng` state give the same recovery. A column that cannot be recovered is an outcome with a reason. A
    solver that needs more than the problem has is a `ProblemError`, before any work. A caller that knows the
    problem's `subspace` can pass it: finding it reads all aggregates.
    """
    began = time.perf_counter()
    chosen = solver_named(solver) if isinstance(solver, str) else solver
    need = unmet_need(chosen, has_counts=problem.has_counts)
    if need is not None:
        raise ProblemError(f"solver: {need}")
    space_rng, solver_rng = rng.spawn(2)
    instance = Instance.prepare(problem, rng=space_rng) if subspace is None else Instance(problem, subspace)
    columns = _checked(chosen.solve(instance, rng=solver_rng, progress=progress), chosen, instance)
    resolved = columns.outcome != Outcome.UNRESOLVED
    averages = (
        np.full(columns.participation.T.shape, np.nan) if problem.counts is None else problem.windows.rates()
    )
    updates = least_squares(problem.aggregates, columns.participation, averages, resolved)
    rows = _rows(instance, columns, updates.values)
    clients = problem.clients if problem.counts is not None else np.arange(columns.participation.shape[1])
    return Recovery(
        clients=clients,
        participation=columns.participation,
        outcome=columns.outcome,
        confidence=columns.confidence,
        reason=columns.reason,
        updates=updates.values,
        rows=rows,
        update_error=updates.error,
        solver=columns.solver,
        seconds=time.perf_counter() - began,
    )


def _rows(instance: Instance, columns: Columns, updates: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """(K, rows) who moved which row, where rows stand still now and then; improves the `updates` in place."""
    resolved = columns.outcome != Outcome.UNRESOLVED
    if instance.traces is None or not resolved.any():
        return None
    taking_part = np.where(resolved, columns.participation == 1, False)
    missing = max(0, instance.subspace.num_clients - int(resolved.sum()))
    authors = authorship(instance.traces, taking_part, missing=missing).toarray()
    write_rows(updates, instance.problem.aggregates, instance.traces, taking_part, authors)
    return np.ascontiguousarray(authors[instance.traces.pattern_of].T)


def solver_named(name: str) -> AbstractSolver:
    """The solver of that name with its default settings; a `ProblemError` if there is none."""
    adapter: TypeAdapter[Solver] = TypeAdapter(Solver)
    try:
        return adapter.validate_python({"name": name})
    except ValidationError as error:
        raise ProblemError(f"solver: {name!r}, expected one of {', '.join(members(Solver))}") from error


def _checked(columns: Columns, solver: AbstractSolver, instance: Instance) -> Columns:
    """The columns, held against what the solver declares; a failure that proves little says why."""
    if not solver.can_prove and (columns.outcome == Outcome.PROVED).any():
        raise AssertionError(f"{solver.name} declares that it cannot prove, and returned a proof")
    if instance.subspace.exact or solver.models_noise:
        return columns
    failed = columns.outcome == Outcome.UNRESOLVED
    said = np.array([f"{ASSUMES_NO_NOISE}: {reason}" for reason in columns.reason], dtype=np.str_)
    return replace(columns, reason=np.where(failed, said, columns.reason))

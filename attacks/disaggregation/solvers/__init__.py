"""Ways to find the participation columns. Each is a settings object with a `solve` method.

To add a solver, write a subclass of `AbstractSolver` in a file of its own, declare what it needs and
promises, and add it to the union below.
"""

from typing import Annotated

from pydantic import Field

from attacks.disaggregation.solvers.annealing import Annealing
from attacks.disaggregation.solvers.auto import Auto
from attacks.disaggregation.solvers.blind import Blind
from attacks.disaggregation.solvers.gurobi import Gurobi
from attacks.disaggregation.solvers.highs import Highs
from attacks.disaggregation.solvers.message_passing import MessagePassing
from attacks.disaggregation.solvers.projection import Projection
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.solvers.sparse import Sparse
from fedsim.core.plugins import Extensible
from fedsim.core.settings import members

Solver = Annotated[
    Projection | MessagePassing | Annealing | Highs | Gurobi | Blind | Sparse | Auto,
    Field(discriminator="name"),
    Extensible("solvers", AbstractSolver),
]


def unmet_need(solver: AbstractSolver, *, has_counts: bool) -> str | None:
    """One line about what the solver needs and lacks, with the names of solvers that would work; or None."""
    if has_counts or not solver.needs_counts:
        return None
    others = " or ".join(sorted(name for name, other in members(Solver).items() if not other.needs_counts))
    return f"{solver.name} needs counts, and there are none; expected {others}"


__all__ = [
    "AbstractSolver",
    "Annealing",
    "Auto",
    "Blind",
    "Gurobi",
    "Highs",
    "MessagePassing",
    "Projection",
    "Solver",
    "Sparse",
    "unmet_need",
]

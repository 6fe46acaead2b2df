"""Ways to find the participation columns; each is a settings object with a `solve` method.

`solve(problem, subspace, *, rng, progress) -> Columns` gets a checked problem and the column space of its
aggregates, and returns a column and an outcome for every client of the problem. To add a solver, write
its class in a file of its own and add it to the union below.
"""

from typing import Annotated

from pydantic import Field

from attacks.disaggregation.solvers.auto import Auto
from attacks.disaggregation.solvers.blind import Blind
from attacks.disaggregation.solvers.gurobi import Gurobi
from attacks.disaggregation.solvers.highs import Highs
from attacks.disaggregation.solvers.message_passing import MessagePassing
from attacks.disaggregation.solvers.projection import Projection
from fedsim.core.settings import BY_NAME

Solver = Annotated[
    Projection | MessagePassing | Highs | Gurobi | Blind | Auto, Field(discriminator="name"), BY_NAME
]

__all__ = ["Auto", "Blind", "Gurobi", "Highs", "MessagePassing", "Projection", "Solver"]

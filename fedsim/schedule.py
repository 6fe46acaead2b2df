"""Who is invited in which round. Decided ahead from the seed, over clients' own numbers."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedsim.errors import UserError
from fedsim.settings import BY_NAME, Settings


class Bernoulli(Settings):
    """Every client takes part in every round with the same probability, independently, as in the paper.

    A round may be empty: its aggregate is then zero.
    """

    name: Literal["bernoulli"] = "bernoulli"
    rate: Annotated[float, Field(gt=0, le=1)] = 0.1

    def draw(self, rounds: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds, clients), True where the client is invited."""
        return rng.random((rounds, clients)) < self.rate


class Cohort(Settings):
    """Every round invites the same number of clients, chosen uniformly without replacement."""

    name: Literal["cohort"] = "cohort"
    size: PositiveInt

    def draw(self, rounds: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds, clients), True where the client is invited."""
        if self.size > clients:
            raise UserError(
                f"federation.participation.size is {self.size}: expected at most the {clients} clients"
            )
        invited = np.zeros((rounds, clients), dtype=np.bool_)
        for row in invited:
            row[rng.choice(clients, self.size, replace=False)] = True
        return invited


Participation = Annotated[Bernoulli | Cohort, Field(discriminator="name"), BY_NAME]

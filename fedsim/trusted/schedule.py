"""Who is invited in which round. Decided ahead from the seed, over clients' own numbers."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedsim.core.errors import UserError
from fedsim.core.settings import BY_NAME, Settings


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


class Batches(Settings):
    """Clients are tied into batches that only ever take part together, so that sums reveal batches at best.

    The batch partitioning of So et al. ("Securing secure aggregation", 2023). Batches are drawn once; every
    round invites those that have been invited least often, ties broken at random, so that all get their turn.
    What does not fill a batch joins one: no batch is smaller than `batch_size`.
    """

    name: Literal["batches"] = "batches"
    batch_size: Annotated[int, Field(ge=2)]
    """The number of clients among whom each one hides."""
    per_round: PositiveInt = 1
    """Batches that every round invites."""

    def draw(self, rounds: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds, clients), True where the client is invited."""
        batches = clients // self.batch_size
        if batches < self.per_round:
            raise UserError(
                f"federation.participation.per_round is {self.per_round}: expected at most the {batches} "
                f"batches of {self.batch_size} that {clients} clients make"
            )
        batch_of = rng.permutation(np.arange(clients) % batches)
        invited = np.zeros((rounds, clients), dtype=np.bool_)
        times = np.zeros(batches)
        for row in invited:
            chosen = np.lexsort((rng.random(batches), times))[: self.per_round]
            times[chosen] += 1
            row[np.isin(batch_of, chosen)] = True
        return invited


Participation = Annotated[Bernoulli | Cohort | Batches, Field(discriminator="name"), BY_NAME]

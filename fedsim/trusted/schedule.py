"""The schedule: which clients are invited in which round, drawn from the seed before the first round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedsim.core.errors import UserError
from fedsim.core.plugins import Extensible, PlugIn


class ParticipationSettings(PlugIn, ABC):
    """How the cohorts of a federation are chosen.

    To add a way, write a subclass with a `name` and add it to `Participation` below. It draws over the
    numbers of the clients, never over Flower's node ids, which are random.
    """

    @abstractmethod
    def draw(self, rounds: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds, clients), True where the client is invited; `UserError` if the numbers do not fit."""


class Bernoulli(ParticipationSettings):
    """Every client takes part in every round with the same probability, independently, as in the paper.

    A round may have no clients; its aggregate is then zero.
    """

    name: Literal["bernoulli"] = "bernoulli"
    rate: Annotated[float, Field(gt=0, le=1)] = 0.1

    def draw(self, rounds: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(rounds, clients), True where the client is invited."""
        return rng.random((rounds, clients)) < self.rate


class Cohort(ParticipationSettings):
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


class Batches(ParticipationSettings):
    """Clients form batches that always take part together, so that sums reveal batches at best.

    The batch partitioning of So et al. ("Securing secure aggregation", 2023). Batches are drawn once. Every
    round invites the batches that have been invited least often, and breaks ties at random, so that each gets
    its turn. Clients left over join other batches: no batch is smaller than `batch_size`.
    """

    name: Literal["batches"] = "batches"
    batch_size: Annotated[int, Field(ge=2)]
    """Smallest number of clients in a batch; each client hides among them."""
    per_round: PositiveInt = 1
    """Number of batches that a round invites."""

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


Participation = Annotated[
    Bernoulli | Cohort | Batches,
    Field(discriminator="name"),
    Extensible("participation", ParticipationSettings),
]

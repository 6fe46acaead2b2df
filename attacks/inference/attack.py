"""What every attack from updates to people has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from fedsim.core.errors import UserError
from fedsim.core.settings import Settings
from fedsim.tasks.task import Task

Kind = Literal["inversion", "label_inference", "property_inference"]


class Watch(Protocol):
    """Told now and then how far an attack is, and what its guesses look like by then."""

    def __call__(self, done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
        """`done` steps of `total`; `preview` (n, …) are guesses so far, in the form of the kind's guesses."""


def unwatched(done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
    """Nobody looks."""


@dataclass(frozen=True, eq=False)
class Guesses:
    """One guess for every row of the evidence; what a guess is depends on the kind of attack.

    `inversion`: (n, examples, …) inputs in the form of the `Inversion` class, in no particular order;
    `label_inference`: (n, classes) shares of the client's examples that sum to one;
    `property_inference`: (n,) the probability that the client has the property.
    """

    values: NDArray[np.float32]
    iterations: int = 0
    """Steps of the optimiser in all, 0 for a closed form."""


class InferenceAttack(Settings, ABC):
    """An attack on people's updates. What it is given is all that it knows; the truth is elsewhere."""

    kind: ClassVar[Kind]
    needs: ClassVar[type[Task]] = Task
    """The task that the attack is made for."""

    name: str
    targets: PositiveInt | None = None
    """How many clients are attacked: those with a recovered update first; all clients if not given."""
    cohorts: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    """Sizes of cohorts for which the attack on a sum is measured, too: 1 is one update of one round."""

    @property
    def knows_labels(self) -> bool:
        """Whether the scenario grants the label histograms of the examples behind the evidence."""
        return False

    def check(self, knowledge: Knowledge) -> None:
        """A `UserError` if the attack cannot work on this task, model, recipe or auxiliary data."""
        if not isinstance(knowledge.task, self.needs):
            raise UserError(
                f"attack.inference: {self.name} needs {self.needs.title}; "
                f"the data are for {knowledge.task.title}"
            )

    @abstractmethod
    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """A guess for every row of the evidence."""

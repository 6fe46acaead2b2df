"""The base class of all inference attacks, which say what they need and what they guess."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.inference.needs import LayerNeed
from fedsim.core.errors import UserError
from fedsim.core.plugins import PlugIn
from fedsim.tasks.task import Task

Kind = Literal["inversion", "label_inference", "property_inference", "word_attribution", "sentences"]


class Watch(Protocol):
    """A callback for the progress of an attack and for previews of its guesses."""

    def __call__(self, done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
        """`done` steps of `total`; `preview` (n, …) are the guesses so far, in the form of the final ones."""


def unwatched(done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
    """The default: ignore the progress."""


@dataclass(frozen=True, eq=False)
class Guesses:
    """One guess for every row of the evidence; its form depends on the kind of attack.

    `inversion`: (n, examples, …) inputs in the form of the `Inversion` class, in no particular order;
    `label_inference`: (n, classes) shares of the client's examples that sum to one;
    `property_inference`: (n,) the probability that the client has the property;
    `word_attribution`: (n, words) the probability that the client typed each word;
    `sentences`: (n, pieces, length) token numbers, −token for a word whose place is unknown, 0 for nothing.
    """

    values: NDArray[np.float32]
    iterations: int = 0
    """Total steps of the optimiser, 0 for a closed form."""


class InferenceAttack(PlugIn, ABC):
    """An attack that infers private data from updates. It knows only its arguments, never the truth.

    The class attributes declare what the attack needs. `check` compares them with the server's knowledge
    once, before training.
    """

    kind: ClassVar[Kind]
    key: ClassVar[str | None] = None
    """Its name in results and files, if that is not `name`."""
    needs_task: ClassVar[type[Task]] = Task
    """The kind of task that the attack is made for."""
    needs_layer: ClassVar[LayerNeed | None] = None
    """The layer from whose change the attack infers."""
    needs_full_gradients: ClassVar[bool] = False
    """Whether an update must be one step along the gradient of all examples."""
    needs_auxiliary: ClassVar[bool] = False
    """Whether the scenario must grant auxiliary examples."""
    imports: ClassVar[tuple[str, ...]] = ("torch",)
    """Large modules that the attack uses; its process loads them while clients still train."""

    targets: PositiveInt | None = None
    """Number of clients to attack, clients with a recovered update first; all clients if not given."""
    cohorts: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    """Cohort sizes for which the attack on a sum is measured as well; 1 is one update of one round."""

    @property
    def knows_labels(self) -> bool:
        """Whether the scenario grants the label histograms of the examples behind the evidence."""
        return False

    def check(self, knowledge: Knowledge) -> None:
        """Raise a `UserError` if the task, model, training or auxiliary data lack something that is needed.

        A subclass extends it for needs that depend on its settings.
        """
        task, work = knowledge.task, knowledge.work
        if not isinstance(task, self.needs_task):
            raise self.unmet(f"{self.needs_task.title}; the data are for {task.title}")
        if self.needs_layer is not None and not self.needs_layer.met_by(knowledge):
            raise self.unmet(f"{self.needs_layer.value}; model {knowledge.model.name} has none")
        if self.needs_full_gradients and work.steps > 1:
            raise self.unmet(
                f"full gradients: expected clients.local_epochs = 1 and clients.batch_size of at least "
                f"{work.examples_per_round}, got {work.local_epochs} and {work.batch_size}"
            )
        if self.needs_auxiliary and not len(knowledge.auxiliary.targets):
            raise self.unmet("auxiliary examples: set attack.auxiliary_images")

    def unmet(self, need: str) -> UserError:
        """The error that says what this attack needs."""
        return UserError(f"attack.inference: {self.name} needs {need}")

    @abstractmethod
    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """A guess for every row of the evidence."""

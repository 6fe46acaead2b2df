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
from fedsim.core.settings import Settings

Kind = Literal["inversion", "label_inference", "property_inference"]


class Watch(Protocol):
    """Told now and then how far an attack is, and what its images look like by then."""

    def __call__(self, done: int, total: int, images: NDArray[np.float32] | None = None) -> None:
        """`done` steps of `total`; `images` (n, height, width, 3) in [0, 1]."""


def unwatched(done: int, total: int, images: NDArray[np.float32] | None = None) -> None:
    """Nobody looks."""


@dataclass(frozen=True, eq=False)
class Guesses:
    """One guess for every row of the evidence; what a guess is depends on the kind of attack.

    `inversion`: (n, images, height, width, 3) pixels in [0, 1], in no particular order of images;
    `label_inference`: (n, classes) shares of the client's images that sum to one;
    `property_inference`: (n,) the probability that the client has the property.
    """

    values: NDArray[np.float32]
    iterations: int = 0
    """Steps of the optimiser in all, 0 for a closed form."""


class InferenceAttack(Settings, ABC):
    """An attack on people's updates. What it is given is all that it knows; the truth is elsewhere."""

    kind: ClassVar[Kind]

    name: str
    targets: PositiveInt | None = None
    """How many clients are attacked: those with a recovered update first; all clients if not given."""
    cohorts: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    """Sizes of cohorts for which the attack on a sum is measured, too: 1 is one update of one round."""

    @property
    def knows_labels(self) -> bool:
        """Whether the scenario grants the label histograms of the images behind the evidence."""
        return False

    @abstractmethod
    def check(self, knowledge: Knowledge) -> None:
        """A `UserError` of one line if the attack cannot work on such a model, recipe or auxiliary data."""

    @abstractmethod
    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """A guess for every row of the evidence."""

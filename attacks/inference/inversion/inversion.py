"""The base class of attacks that reconstruct images from an update."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from fedsim.tasks.images import ImageClassification
from fedsim.tasks.task import Task


class Inversion(InferenceAttack):
    """Reconstructs the images behind every row of the evidence, one row at a time."""

    kind: ClassVar[Kind] = "inversion"
    needs_task: ClassVar[type[Task]] = ImageClassification
    preview_every: ClassVar[int] = 10
    """Iterations between two previews of the images."""

    targets: PositiveInt | None = 1

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n, images, height, width, 3) pixels in [0, 1]."""
        found, iterations = [], 0
        for row, row_rng in enumerate(rng.spawn(len(evidence))):
            inputs, steps = self.invert(
                evidence, row, knowledge, rng=row_rng, watch=share_of(watch, row, len(evidence))
            )
            found.append(as_pixels(inputs))
            iterations += steps
        return Guesses(np.stack(found), iterations)

    @abstractmethod
    def invert(
        self, evidence: Evidence, row: int, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch
    ) -> tuple[NDArray[np.float32], int]:
        """The network inputs (images, *input_shape) behind one row, and the number of iterations.

        The number of images does not depend on the row.
        """


def as_pixels(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo `ImageClassification.as_inputs`: inputs back to pixels, (n, height, width, 3) in [0, 1]."""
    return np.clip((inputs.transpose(0, 2, 3, 1) + 1) / 2, 0, 1).astype(np.float32)


def share_of(watch: Watch, part: int, parts: int) -> Watch:
    """A callback for one of several equal parts of the work that `watch` covers."""

    def watch_part(done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
        watch(part * total + done, parts * total, preview)

    return watch_part

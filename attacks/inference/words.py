"""Which words a client typed, from the rows of the word vectors that its update moves."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from fedsim.tasks.task import Task
from fedsim.tasks.text import NextWord


class Words(InferenceAttack):
    """Names the words that a client typed: the vector of every other word stays where it is.

    A guess is 1 for a word that was surely typed, 0 for one that was not, and between if others could have
    moved the row instead. It works if input and output have vectors of their own: tied vectors all move.
    """

    kind: ClassVar[Kind] = "word_attribution"
    key: ClassVar[str | None] = "word_attribution"
    needs_task: ClassVar[type[Task]] = NextWord
    name: Literal["words"] = "words"

    def check(self, knowledge: Knowledge) -> None:
        """The first layer has to be a table with a vector for every word."""
        super().check(knowledge)
        if knowledge.layer_shapes[0][:1] != (knowledge.task.outputs,):
            raise self.unmet(f"a model that begins with word vectors; model {knowledge.model.name} does not")

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n, words) the probability that each word is among those behind a row of the evidence."""
        words = knowledge.task.outputs
        if evidence.rows is not None:
            return Guesses(np.ascontiguousarray(evidence.rows[:, :words], dtype=np.float32))
        return Guesses(moved_rows(evidence.updates, knowledge.layer_shapes[0]))


def moved_rows(updates: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """(n, rows) 1 where an update (n, dim) moves a row of its first tensor, 0 elsewhere."""
    rows, width = shape
    table = updates[:, : rows * width].reshape(len(updates), rows, width)
    return np.asarray(table.any(axis=2), dtype=np.float32)

"""Which words a client typed, from the rows of the word vectors that its update moves."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.inference.needs import LayerNeed
from fedsim.tasks.task import Task
from fedsim.tasks.text import NextWord

FAR = 4.0
"""Standard deviations beyond the median from which a row has moved although all rows are noisy: hardly any of
thousands of rows of noise goes that far."""


class Words(InferenceAttack):
    """Names the words that a client typed: the vector of every other word stays where it is.

    A guess is 1 for a word that was surely typed, 0 for one that was not, and between if others could have
    moved the row instead. Tied vectors and noise move all rows: then those that move furthest are named.
    """

    kind: ClassVar[Kind] = "word_attribution"
    key: ClassVar[str | None] = "word_attribution"
    needs_task: ClassVar[type[Task]] = NextWord
    needs_layer: ClassVar[LayerNeed | None] = LayerNeed.WORDS
    name: Literal["words"] = "words"

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n, words) the probability that each word is among those behind a row of the evidence."""
        words = knowledge.task.outputs
        if evidence.rows is not None:
            return Guesses(np.ascontiguousarray(evidence.rows[:, :words], dtype=np.float32))
        return Guesses(moved_rows(evidence.updates, knowledge.layer_shapes[0]))


def moved_rows(updates: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """(n, rows) 1 where an update (n, dim) moves a row of its first tensor, 0 elsewhere.

    If no row stands still, because of noise, the rows that move much further than most are taken: a client
    types a small part of all words.
    """
    rows, width = shape
    table = updates[:, : rows * width].reshape(len(updates), rows, width)
    moved = np.asarray(table.any(axis=2))
    for noisy in np.flatnonzero(moved.all(axis=1)):
        length = np.linalg.norm(table[noisy], axis=1)
        usual = np.median(length)
        spread = 1.4826 * np.median(np.abs(length - usual))  # the standard deviation of a normal law
        moved[noisy] = length > usual + FAR * spread
    return np.asarray(moved, dtype=np.float32)

"""The texts behind an update: whole sequences of a transformer, and the bag of words of any model."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.inference.needs import LayerNeed
from fedsim.tasks.task import Task
from fedsim.tasks.text import NextWord


class Sentences(InferenceAttack):
    """Reads the texts behind an update: sequences by span checks, other words as a bag with multiplicities.

    Sequences need a transformer, updates of one gradient step, and fewer tokens than the model is wide.
    Otherwise the bag of words remains.
    """

    kind: ClassVar[Kind] = "sentences"
    needs_task: ClassVar[type[Task]] = NextWord
    needs_layer: ClassVar[LayerNeed | None] = LayerNeed.WORDS
    name: Literal["sentences"] = "sentences"

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n, pieces, length) tokens in pieces as they are trained on; see `Guesses`."""
        from attacks.inference.text_recovery import TextRecovery

        words, length = knowledge.task.outputs, knowledge.task.input_shape[0]
        recovery = TextRecovery(knowledge)
        found = []
        for row, (update, start) in enumerate(zip(evidence.updates, evidence.starts, strict=True)):
            typed = None if evidence.rows is None else evidence.rows[row, :words] >= 0.5
            found.append(recovery.pieces(update, start, typed))
            watch(row + 1, len(evidence))
        values = np.zeros((len(found), max(map(len, found), default=0), length), dtype=np.float32)
        for guess, pieces in zip(values, found, strict=True):
            for place, piece in zip(guess, pieces, strict=False):
                place[: len(piece)] = piece
        return Guesses(values)

"""What the models for next-word prediction have in common."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt

from fedsim.models.architecture import Architecture
from fedsim.tasks.task import Inputs


class LanguageModel(Architecture):
    """Word vectors, a network of `hidden` neurons, and logits of all tokens.

    With `tied` vectors the output layer uses the word vectors of the input: then every row moves in every
    round, because each prediction pushes all words away.
    """

    needs: ClassVar[str] = "tokens"

    embedding: PositiveInt = 32
    """Numbers in a word vector."""
    hidden: PositiveInt = 64
    tied: bool = False

    @classmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Sequences of tokens."""
        return inputs.integer and len(inputs.axes) == 1

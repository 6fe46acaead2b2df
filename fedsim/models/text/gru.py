"""Word vectors and a recurrent network: the classical next-word model of keyboards."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from fedsim.models.architecture import Architecture
from fedsim.tasks.task import Inputs, Task

if TYPE_CHECKING:
    from torch import nn


class Gru(Architecture):
    """Word vectors, a GRU, and a linear layer that predicts the next token.

    With `tied` vectors the output layer uses the word vectors of the input: then every row moves in every
    round, because each prediction pushes all words away.
    """

    needs: ClassVar[str] = "tokens"

    name: Literal["gru"] = "gru"
    embedding: PositiveInt = 32
    """Numbers in a word vector."""
    hidden: PositiveInt = 64
    tied: bool = False

    @classmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Sequences of tokens."""
        return inputs.integer and len(inputs.axes) == 1

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from (n, length) tokens to (n, length, tokens) logits."""
        from fedsim.models.text.networks import GruNetwork

        return GruNetwork(task.outputs, self.embedding, self.hidden, tied=self.tied)

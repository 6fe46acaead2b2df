"""Word vectors and a recurrent network: the classical next-word model of keyboards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedsim.models.text.language_model import LanguageModel
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn


class Gru(LanguageModel):
    """Word vectors, a GRU, and a linear layer that predicts the next token."""

    name: Literal["gru"] = "gru"

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from (n, length) tokens to (n, length, tokens) logits."""
        from fedsim.models.text.networks import GruNetwork

        return GruNetwork(task.outputs, self.embedding, self.hidden, tied=self.tied)

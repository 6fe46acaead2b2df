"""A small transformer for next-word prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from fedsim.models.encoder import check_heads
from fedsim.models.text.language_model import LanguageModel
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn


class Transformer(LanguageModel):
    """Word and position vectors, layers of causal attention, and a linear layer that predicts the next token.

    `embedding` is also the width of the attention, so it is a multiple of `heads`.
    """

    name: Literal["transformer"] = "transformer"
    layers: PositiveInt = 1
    heads: PositiveInt = 2
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        check_heads(self.embedding, self.heads, "embedding")
        return self

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from (n, length) tokens to (n, length, tokens) logits."""
        from fedsim.models.text.networks import TransformerNetwork

        return TransformerNetwork(
            task.outputs,
            task.input_shape[0],
            self.embedding,
            layers=self.layers,
            heads=self.heads,
            hidden=self.hidden,
            dropout=self.dropout,
            tied=self.tied,
        )

"""The networks behind the text models. This module imports torch."""

from __future__ import annotations

import torch
from torch import nn

EMBEDDING_SD = 0.1
"""Standard deviation of new word vectors: torch's own, 1, drowns the updates of the first rounds."""


class Output(nn.Module):
    """From hidden states to logits of all tokens; with `tied` vectors, by comparison with these."""

    def __init__(self, vectors: nn.Embedding, hidden: int, *, tied: bool) -> None:
        super().__init__()
        tokens, width = vectors.weight.shape
        self.tied = tied
        if tied:
            self.project = nn.Linear(hidden, width)
            self.bias = nn.Parameter(torch.zeros(tokens))
        else:
            self.linear = nn.Linear(hidden, tokens)

    def forward(self, states: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """(n, length, hidden) to (n, length, tokens)."""
        if self.tied:
            return torch.nn.functional.linear(self.project(states), vectors, self.bias)
        logits: torch.Tensor = self.linear(states)
        return logits


class GruNetwork(nn.Module):
    """Tokens (n, length) → word vectors → GRU → logits (n, length, tokens)."""

    def __init__(self, tokens: int, width: int, hidden: int, *, tied: bool) -> None:
        super().__init__()
        self.vectors = nn.Embedding(tokens, width)
        nn.init.normal_(self.vectors.weight, std=EMBEDDING_SD)
        self.recurrent = nn.GRU(width, hidden, batch_first=True)
        self.output = Output(self.vectors, hidden, tied=tied)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next token at every position."""
        states, _ = self.recurrent(self.vectors(tokens))
        logits: torch.Tensor = self.output(states, self.vectors.weight)
        return logits

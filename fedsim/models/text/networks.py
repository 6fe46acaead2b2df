"""The networks behind the text models. This module imports torch."""

from __future__ import annotations

import torch
from torch import nn

from fedsim.models.encoder import encoder_layers

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


class TransformerNetwork(nn.Module):
    """Tokens (n, length) → word and position vectors → causal attention → logits (n, length, tokens)."""

    def __init__(
        self,
        tokens: int,
        length: int,
        width: int,
        *,
        layers: int,
        heads: int,
        hidden: int,
        dropout: float,
        tied: bool,
    ) -> None:
        super().__init__()
        self.vectors = nn.Embedding(tokens, width)
        nn.init.normal_(self.vectors.weight, std=EMBEDDING_SD)
        self.positions = nn.Embedding(length, width)
        nn.init.normal_(self.positions.weight, std=EMBEDDING_SD)
        self.layers = encoder_layers(width, layers=layers, heads=heads, hidden=hidden, dropout=dropout)
        self.norm = nn.LayerNorm(width)
        self.output = Output(self.vectors, width, tied=tied)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next token at every position; a position sees itself and those before it."""
        x = self.placed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.output(self.norm(x), self.vectors.weight)
        return logits

    def placed(self, tokens: torch.Tensor) -> torch.Tensor:
        """(n, length, width) the vectors of tokens at their positions, which the first layer reads."""
        placed: torch.Tensor = self.vectors(tokens) + self.positions.weight[: tokens.shape[1]]
        return placed

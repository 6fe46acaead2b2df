"""The module of the vision transformer; its settings are read without torch."""

from __future__ import annotations

import torch
from torch import nn

from fedsim.models.encoder import encoder_layers


class VisionTransformer(nn.Module):
    """Patches of an image as a sequence, through encoder layers that normalise first, to logits."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        *,
        patch: int,
        width: int,
        layers: int,
        heads: int,
        hidden: int,
        dropout: float,
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (rows // patch) * (columns // patch), width))
        self.layers = encoder_layers(width, layers=layers, heads=heads, hidden=hidden, dropout=dropout)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to (n, classes)."""
        sequence = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        logits: torch.Tensor = self.head(self.norm(self.layers(sequence)).mean(dim=1))
        return logits

"""What a layer of stacked networks does, and the memory it works in."""

from __future__ import annotations

import math
from typing import Protocol

import torch


class Layer(Protocol):
    """A layer of all copies. `forward` comes before `backward`, for the same batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, …) inputs to outputs."""

    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; the gradient in the inputs if somebody further down wants it."""


class Workspace:
    """Memory that is used again in every step: to get fresh memory costs more than to write to it."""

    def __init__(self) -> None:
        self._rooms: dict[str, torch.Tensor] = {}

    def room(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor of that shape with anything in it; the same memory for the same name."""
        size = math.prod(shape)
        if name not in self._rooms or self._rooms[name].numel() < size:
            self._rooms[name] = torch.empty(size)
        return self._rooms[name][:size].view(shape)

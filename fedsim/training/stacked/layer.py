"""The contract of a layer of stacked networks, and the memory that it works in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch


class Layer(ABC):
    """A layer of all copies. `forward` comes before `backward`, for the same batch."""

    @abstractmethod
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(copies, batch, …) inputs to outputs."""

    @abstractmethod
    def backward(self, gradient: torch.Tensor, *, further: bool) -> torch.Tensor | None:
        """Take a step; return the gradient in the inputs if a layer `further` down needs it."""


class Workspace:
    """Memory that every step uses again: fresh memory costs more than writing to it."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def buffer(self, name: str, *shape: int) -> torch.Tensor:
        """An uninitialised tensor of that shape; the same memory for the same name."""
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name].numel() < size:
            self._buffers[name] = torch.empty(size)
        return self._buffers[name][:size].view(shape)

"""The residual block, the only module of the library's networks that torch lacks.

It has its own file, because a subclass of `nn.Module` needs torch when it is defined, and scenario files are
read without torch.
"""

import torch
from torch import nn


class Residual(nn.Module):
    """ReLU of the sum of two paths that give the same shape."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to (n, channels, rows, columns)."""
        return nn.functional.relu(self.body(images) + self.shortcut(images))

"""How pixels become a network's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def scaled_(pixels: torch.Tensor) -> torch.Tensor:
    """Pixels from 0 to 255 as numbers from -1 to 1, in place."""
    return pixels.div_(127.5).sub_(1)

"""How pixels become a network's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


MIDDLE = 127.5
"""Between black and white: how far a pixel is from there, over as much, is what a network gets to see."""


def scaled_(pixels: torch.Tensor) -> torch.Tensor:
    """Pixels from 0 to 255 as numbers from -1 to 1, in place."""
    return pixels.div_(MIDDLE).sub_(1)

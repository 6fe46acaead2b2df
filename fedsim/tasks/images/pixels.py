"""How pixels become a network's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MID_GREY = 127.5
"""A network sees (pixel - MID_GREY) / MID_GREY."""


def scaled_(pixels: torch.Tensor) -> torch.Tensor:
    """Pixels from 0 to 255 as numbers from -1 to 1, in place."""
    return pixels.div_(MID_GREY).sub_(1)

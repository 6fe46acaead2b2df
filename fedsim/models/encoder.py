"""Encoder layers of transformers, for any sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from torch import nn


def check_heads(width: int, heads: int, name: str = "width") -> None:
    """A validation error unless the heads can share the width equally; `name` is that of the setting."""
    if width % heads:
        raise PydanticCustomError("heads", "expected {name} to be a multiple of heads", {"name": name})


def encoder_layers(width: int, *, layers: int, heads: int, hidden: int, dropout: float) -> nn.Sequential:
    """Layers of attention and a hidden layer of GELU neurons, each of which normalises its input first."""
    from torch import nn

    return nn.Sequential(
        *(
            nn.TransformerEncoderLayer(
                width, heads, hidden, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
    )

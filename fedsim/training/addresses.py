"""Tensors for compiled loops, by address: making arrays of them takes as long as work on small maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from numba import types
from numba.extending import intrinsic


def arranged(maps: torch.Tensor) -> torch.Tensor:
    """The maps with the channels of a place side by side; the same memory if they are so already."""
    return maps.contiguous(memory_format=torch.channels_last)


def address(tensor: torch.Tensor | None) -> int:
    """The address of its first number, 0 if there is none."""
    return 0 if tensor is None else tensor.data_ptr()


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """A pointer to float32 from an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(address), generate  # type: ignore[no-untyped-call]


pointer_at = cast("Callable[[int], Any]", _pointer)
"""In compiled loops: a pointer to float32 from an address."""

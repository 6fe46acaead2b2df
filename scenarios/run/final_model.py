"""The server's model after the last round, as a file that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.core.files import written_whole

if TYPE_CHECKING:
    from torch import nn


def save_model(module: nn.Module, file: Path) -> None:
    """Write all parameters and buffers by name, as safetensors; the same model gives the same bytes."""
    from safetensors.numpy import save

    # Parameters are views of one vector, and a file needs arrays of their own.
    tensors = {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}
    with written_whole(file) as temporary:
        temporary.write_bytes(save(tensors, metadata={"format": "pt"}))

"""The device that local training and attacks run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    import torch

DeviceName = Literal["auto", "cpu", "cuda", "mps"]


class EngineSettings(Settings):
    """Where the clients of a simulation are trained, and where attacks compute."""

    device: DeviceName = "cpu"
    """`auto` takes a GPU if there is one. Another device changes the last digits of updates."""


def device_type(name: DeviceName) -> str:
    """torch's name of that device; torch itself is not needed for `cpu`."""
    return "cpu" if name == "cpu" else find_device(name).type


def find_device(name: DeviceName) -> torch.device:
    """The device of that name; a `UserError` if this machine has none."""
    import torch

    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if name == "auto":
        return torch.device(next(kind for kind, is_there in there.items() if is_there()))
    if not there[name]():
        raise UserError(f"engine.device is {name!r}: torch finds no such device here; expected auto or cpu")
    return torch.device(name)

"""The memory of devices, as an engine hands it out whose runs can be resumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from flwr.app import RecordDict


class DeviceMemory(ABC):
    """What every device remembers between two rounds: the state of its Flower context, by node id.

    Only the simulator may look at it: a device's diary is part of it.
    """

    @property
    @abstractmethod
    def states(self) -> Mapping[int, RecordDict]:
        """The state of every device, valid until the next message to one."""

    @abstractmethod
    def restore(self, states: Mapping[int, RecordDict]) -> None:
        """Give these devices the states that another process read from them."""

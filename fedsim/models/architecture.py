"""The contract of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings
from fedsim.tasks.task import Inputs, Task

if TYPE_CHECKING:
    from torch import nn


class Architecture(Settings, ABC):
    """A network's settings; `build` makes the network for a task."""

    needs: ClassVar[str]
    """The inputs that it takes, in words."""
    is_foreign: ClassVar[bool] = False
    """Whether somebody else wrote the network, so that training checks that it is not random."""

    name: str

    @classmethod
    @abstractmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Whether it can be built for such inputs."""

    @abstractmethod
    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from (n, *task.input_shape) to (n, *task.output_shape).

        All that it learns are float32 parameters: it keeps no other state and draws no random numbers.
        """

    def check(self, task: type[Task] | Task) -> None:
        """A `UserError` if the task's inputs are not for this model."""
        if not self.takes(task.inputs):
            raise UserError(
                f"model.name is {self.name!r}: it needs {self.needs}; "
                f"the data are for {task.title}, whose inputs are {task.inputs}"
            )

"""The contract of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedsim.core.errors import UserError
from fedsim.core.plugins import PlugIn
from fedsim.core.users_code import is_users
from fedsim.models.trial import tried_out
from fedsim.tasks.task import Inputs, Task

if TYPE_CHECKING:
    from torch import nn


class Architecture(PlugIn, ABC):
    """A network's settings; `build` makes the network for a task."""

    needs: ClassVar[str] = "other inputs"
    """The inputs that it takes, in words."""
    channels_last: ClassVar[bool] = False
    """Whether clients train faster if the channels of a place lie side by side in memory. A network that asks
    for views of its activations would fail then."""

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else wrote the network, so that training checks that it is not random."""
        return is_users(type(self))

    @classmethod
    @abstractmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Whether it can be built for such inputs."""

    @abstractmethod
    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from (n, *task.input_shape) to (n, *task.output_shape).

        All that it learns are float32 parameters: it keeps no other state and draws no random numbers.
        """

    def built(self, task: Task) -> nn.Module:
        """What `build` returns; the network of a plug-in is tried out first."""
        if not is_users(type(self)):
            return self.build(task)
        return tried_out(lambda: self.build(task), task, f"model: {self.name}")

    def check(self, task: type[Task] | Task) -> None:
        """A `UserError` if the task's inputs are not for this model."""
        if not self.takes(task.inputs):
            raise UserError(
                f"model.name is {self.name!r}: it needs {self.needs}; "
                f"the data are for {task.title}, whose inputs are {task.inputs}"
            )

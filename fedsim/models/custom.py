"""The user's own network, from the user's own Python module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from fedsim.core.errors import UserError
from fedsim.core.users_code import attribute_named, is_reference
from fedsim.models.architecture import Architecture
from fedsim.models.trial import tried_out
from fedsim.tasks.task import Inputs, Task

if TYPE_CHECKING:
    from torch import nn


class Custom(Architecture):
    """Your own network: `factory = "module:function"`, called with (input_shape, outputs).

    Python looks for the module on its path, then in the current folder. Its code is run, so be careful with
    scenario files that you did not write. The factory returns an `nn.Module` from (n, *input_shape) to (n,
    outputs), the logits if the task is a classification.

    A federation exchanges parameters and the running statistics of normalisation layers, and every engine has
    to compute the same update. So a network is refused if it keeps other state, or draws random numbers that
    are not torch's; torch's are those of the client and the round (dropout). A factory is refused if it
    returns other weights when it is called again with the same state of torch's generator. Training goes on
    checking: see `fedsim.training.determinism`.
    """

    needs: ClassVar[str] = "any inputs"

    name: Literal["custom"] = "custom"
    factory: str

    @field_validator("factory")
    @classmethod
    def _module_and_function(cls, factory: str) -> str:
        if not is_reference(factory):
            raise PydanticCustomError("factory", "expected module:function, such as my_networks:tiny")
        return factory

    @property
    def is_foreign(self) -> bool:
        """The factory's network is the user's."""
        return True

    @classmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Its factory is tried with any inputs."""
        return True

    def build(self, task: Task) -> nn.Module:
        """The network that the factory returns twice, after a trial on a batch of two."""
        factory = self._find()
        return tried_out(
            lambda: factory(task.input_shape, task.outputs), task, f"model.factory: {self.factory}"
        )

    def further_modules(self) -> set[str]:
        """The module of the factory."""
        return {self.factory.partition(":")[0]}

    def _find(self) -> Callable[[tuple[int, ...], int], Any]:
        found = attribute_named(self.factory, said="model.factory")
        if not callable(found):
            raise UserError(f"model.factory: {self.factory} is not a function but {type(found).__name__}")
        factory: Callable[[tuple[int, ...], int], Any] = found
        try:
            inspect.signature(factory).bind((3, 32, 32), 10)
        except TypeError as error:
            raise UserError(
                f"model.factory: {self.factory} cannot be called with (input_shape, outputs): {error}"
            ) from error
        return factory

"""The user's own network, from the user's own Python module."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from fedsim.core.errors import UserError
from fedsim.core.users_code import mark_as_users
from fedsim.models.architecture import Architecture
from fedsim.tasks.task import Inputs, Task

if TYPE_CHECKING:
    import torch
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
    is_foreign: ClassVar[bool] = True

    name: Literal["custom"] = "custom"
    factory: str

    @field_validator("factory")
    @classmethod
    def _module_and_function(cls, factory: str) -> str:
        if not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", factory):
            raise PydanticCustomError("factory", "expected module:function, such as my_networks:tiny")
        return factory

    @classmethod
    def takes(cls, inputs: Inputs) -> bool:
        """Its factory is tried with any inputs."""
        return True

    def build(self, task: Task) -> nn.Module:
        """The network that the factory returns twice, after a trial on a batch of two."""
        import torch
        from torch import nn

        with _one_line(f"model.factory: {self.factory} cannot be used on inputs of shape {task.input_shape}"):
            factory = self._find()
            state = torch.get_rng_state()
            module = _tried_out(factory(task.input_shape, task.outputs), task)
            weights = _weights(module)
            torch.set_rng_state(state)
            again = factory(task.input_shape, task.outputs)
            if not isinstance(again, nn.Module) or _weights(again) != weights:
                raise ValueError("it returns other weights each time: draw them from torch's generator only")
            return module

    def _find(self) -> Callable[[tuple[int, ...], int], Any]:
        module_name, _, attributes = self.factory.partition(":")
        found: Any = _import(module_name)
        for attribute in attributes.split("."):
            if not hasattr(found, attribute):
                raise UserError(f"model.factory: {module_name} has no {attributes!r}")
            found = getattr(found, attribute)
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


def _import(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        # For good: the factory may import more when it is called, and worker processes import its module
        # when they unpack the network. Last on the path, so that a file there hides no package.
        sys.path.append(folder)
    try:
        with _no_exit():
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"model.factory: there is no module {name!r}, neither where Python looks nor in {folder}"
            ) from error
        raise UserError(f"model.factory: {name} cannot be imported: {error}") from error
    except (ImportError, SyntaxError, RuntimeError) as error:
        raise UserError(f"model.factory: {name} cannot be imported: {error}") from error
    mark_as_users(module)
    return module


@contextmanager
def _one_line(about: str) -> Iterator[None]:
    """Turns an exception of the user's code, or about its network, into a `UserError`."""
    try:
        with _no_exit():
            yield
    except UserError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"{about}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def _no_exit() -> Iterator[None]:
    """Turns `sys.exit()` in the user's code into an exception like any other: it must not end the command."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it calls sys.exit({'' if error.code is None else repr(error.code)})") from error


def _weights(module: nn.Module) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in module.parameters()]


def _tried_out(module: Any, task: Task) -> nn.Module:
    """The module, if a federation can use it; a `ValueError` otherwise."""
    import torch
    from torch import nn

    from fedsim.models.normalisation import batch_counters, running_statistics

    if not isinstance(module, nn.Module):
        raise ValueError(f"expected an nn.Module, got {type(module).__name__}")
    parameters = list(module.parameters())
    if not parameters:
        raise ValueError("it has no parameters")
    if any(parameter.dtype != torch.float32 for parameter in parameters):
        raise ValueError("expected parameters of type float32 only")
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.train()
    # Two constant inputs that differ a little: random numbers show in the outputs, whatever they do.
    constants = torch.arange(2) if task.inputs.integer else torch.linspace(-0.5, 0.5, 2)
    batch = constants.reshape(2, *(1 for _ in task.input_shape)).expand(2, *task.input_shape).contiguous()
    first, second = (_outputs(module, batch) for _ in range(2))
    if not isinstance(first, torch.Tensor) or first.shape != (2, *task.output_shape):
        got = tuple(first.shape) if isinstance(first, torch.Tensor) else type(first).__name__
        raise ValueError(
            f"expected outputs of shape {(2, *task.output_shape)} for two {task.noun}, got {got}"
        )
    federated = {id(tensor) for tensor in (*running_statistics(module), *batch_counters(module))}
    for name, buffer in module.named_buffers():
        if id(buffer) in federated:
            buffer.copy_(before[name])
        elif not torch.equal(before[name], buffer):
            raise ValueError(f"it keeps state beside its parameters and running statistics: {name}")
    if not torch.equal(first, second):
        raise ValueError("it gives two answers to one batch: draw random numbers from torch's generator only")
    return module


def _outputs(module: nn.Module, batch: torch.Tensor) -> Any:
    """The outputs in training mode, with the same random numbers from torch's generator every time."""
    import torch

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return module(batch)

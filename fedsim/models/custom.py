"""A network of the user's own, from a Python module of theirs."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from torch import nn

_FACTORY_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python and torch raise about code that is wrong or does not fit: the user's mistake, not ours."""


class Custom(Settings):
    """Your own network: `factory = "module:function"`, called with (image_shape, classes).

    The module is looked for where Python finds modules, then in the current folder; it is run, so use a
    scenario file of somebody else's with the care that its code deserves. `image_shape` is (channels,
    height, width), and the factory returns an `nn.Module` from (n, *image_shape) to (n, classes) logits.

    A federation exchanges parameters and nothing else, and every engine has to get the same update. So a
    network is refused that carries other state from batch to batch (batch normalisation) or that draws
    random numbers (dropout).
    """

    name: Literal["custom"] = "custom"
    factory: str

    @field_validator("factory")
    @classmethod
    def _module_and_function(cls, factory: str) -> str:
        if not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", factory):
            raise PydanticCustomError("factory", "expected module:function, such as my_networks:tiny")
        return factory

    def build(self, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
        """What the factory returns, tried out on a batch of two grey images."""
        with _one_line(f"model.factory: {self.factory} cannot be used on images of shape {image_shape}"):
            return _tried_out(self._find()(image_shape, classes), image_shape, classes)

    def _find(self) -> Callable[[tuple[int, int, int], int], Any]:
        module_name, _, attributes = self.factory.partition(":")
        found: Any = _import(module_name)
        for attribute in attributes.split("."):
            if not hasattr(found, attribute):
                raise UserError(f"model.factory: {module_name} has no {attributes!r}")
            found = getattr(found, attribute)
        if not callable(found):
            raise UserError(f"model.factory: {self.factory} is not a function but {type(found).__name__}")
        factory: Callable[[tuple[int, int, int], int], Any] = found
        try:
            inspect.signature(factory).bind((3, 32, 32), 10)
        except TypeError as error:
            raise UserError(
                f"model.factory: {self.factory} cannot be called with (image_shape, classes): {error}"
            ) from error
        return factory


def _import(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        # For good: what the factory imports when it is called, and what worker processes import to unpack
        # its network, is looked for in the same places. Last, so that a file there hides no package.
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"model.factory: there is no module {name!r}, neither where Python looks nor in {folder}"
            ) from error
        raise UserError(f"model.factory: {name} cannot be imported: {error}") from error
    except (ImportError, SyntaxError) as error:
        raise UserError(f"model.factory: {name} cannot be imported: {error}") from error


@contextmanager
def _one_line(about: str) -> Iterator[None]:
    """What torch and Python say about a network that does not fit, as a `UserError`."""
    try:
        yield
    except _FACTORY_ERRORS as error:
        raise UserError(f"{about}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _tried_out(module: Any, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The module, if a federation can use it; a `ValueError` otherwise."""
    import torch
    from torch import nn

    if not isinstance(module, nn.Module):
        raise ValueError(f"expected an nn.Module, got {type(module).__name__}")
    parameters = list(module.parameters())
    if not parameters:
        raise ValueError("it has no parameters")
    if any(parameter.dtype != torch.float32 for parameter in parameters):
        raise ValueError("expected parameters of type float32 only")
    before = [buffer.clone() for buffer in module.buffers()]
    module.train()
    with torch.no_grad():
        # Grey images that differ a little: dropout shows in the outputs, whatever it drops.
        images = torch.linspace(-0.5, 0.5, 2).reshape(2, 1, 1, 1).expand(2, *image_shape).contiguous()
        first, second = module(images), module(images)
    if not isinstance(first, torch.Tensor) or first.shape != (2, classes):
        got = tuple(first.shape) if isinstance(first, torch.Tensor) else type(first).__name__
        raise ValueError(f"expected logits of shape (2, {classes}) for two images, got {got}")
    if any(not torch.equal(old, new) for old, new in zip(before, module.buffers(), strict=True)):
        raise ValueError(
            "it keeps state beside its parameters (batch normalisation?): use group normalisation"
        )
    if not torch.equal(first, second):
        raise ValueError("it gives two answers to one batch (dropout?)")
    return module

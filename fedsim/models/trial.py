"""A network that somebody else wrote is tried out before a federation uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedsim.core.users_code import one_line

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedsim.tasks.task import Task


def tried_out(make: Callable[[], Any], task: Task, said: str) -> nn.Module:
    """The network that `make` returns twice, after a trial on a batch of two; a `UserError` otherwise.

    A federation exchanges parameters and the running statistics of normalisation layers, and every engine has
    to compute the same update. So a network is refused if it keeps other state, if it draws random numbers
    that are not torch's, or if it has other weights when it is made again with the same state of torch's
    generator. `said` begins the message.
    """
    import torch
    from torch import nn

    with one_line(f"{said} cannot be used on inputs of shape {task.input_shape}"):
        state = torch.get_rng_state()
        module = _usable(make(), task)
        weights = _weights(module)
        torch.set_rng_state(state)
        again = make()
        if not isinstance(again, nn.Module) or _weights(again) != weights:
            raise ValueError("it returns other weights each time: draw them from torch's generator only")
        return module


def _weights(module: nn.Module) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in module.parameters()]


def _usable(module: Any, task: Task) -> nn.Module:
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

"""The stack: from one network's parameters to a trained network for each copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedsim.tasks.task import StackedTask
from fedsim.training.stacked.convolution import Convolution
from fedsim.training.stacked.first_linear import FirstLinear
from fedsim.training.stacked.input_layer import InputLayer, RawInputs, Shards
from fedsim.training.stacked.layer import Layer
from fedsim.training.stacked.linear import Linear
from fedsim.training.stacked.parameter import Parameter, Sgd
from fedsim.training.stacked.stages import Stage


class Stack:
    """`copies` of the network made of `stages`, trained on a task.

    To its callers a network is a vector of length dim in torch's order of parameters, as it is for
    `FlatModel`. With `few_examples`, a linear layer in front is a `FirstLinear`.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        task: StackedTask,
        *,
        copies: int,
        sgd: Sgd,
        few_examples: bool = False,
    ) -> None:
        self._task, self._copies, self._sgd = task, copies, sgd
        self._parameters: list[Parameter] = []
        self._dim = 0
        self._input_layer: InputLayer = RawInputs(copies, task)
        self._layers: list[Layer] = []
        for stage in stages:
            layer, activation = stage.layer, stage.activation
            if isinstance(layer, nn.Linear) and stage is stages[0] and few_examples:
                entries = self._next_entries(layer.weight.shape)
                bias = self._bias(layer)
                self._input_layer = FirstLinear(
                    copies,
                    task,
                    entries=entries,
                    shape=(layer.out_features, layer.in_features),
                    bias=bias,
                    activation=activation,
                    sgd=sgd,
                )
                continue
            weight = self._parameter(layer.weight.shape)
            bias = self._bias(layer)
            if isinstance(layer, nn.Conv2d):
                down, right = (int(side) for side in layer.padding)
                self._layers.append(
                    Convolution(weight, bias, activation, padding=(down, right), pool=stage.pool)
                )
            else:
                self._layers.append(Linear(weight, bias, activation))

    def restart(self, start: torch.Tensor, shards: Shards, *, lr: float) -> None:
        """Make all copies the network `start`, (dim,), each for one of the clients of the shards."""
        self._sgd.lr = lr
        for parameter in self._parameters:
            parameter.restart(start)
        self._input_layer.restart(start, shards)
        self._offsets = shards.size * torch.arange(self._copies)[:, None]
        self._targets = self._task.encoded(shards.targets[shards.all_positions])

    def write_updates(self, start: torch.Tensor, *, out: torch.Tensor) -> None:
        """Write the difference of the copies from `start` to `out` (copies, dim)."""
        for parameter in self._parameters:
            torch.sub(parameter.value, parameter.entries_of(start), out=parameter.entries_of(out))
        self._input_layer.write_updates(out=out)

    def step(self, chosen: torch.Tensor) -> None:
        """One step down the mean loss of a batch: `chosen` (copies, length) of each client's examples."""
        batch = (chosen + self._offsets).flatten()
        x = self._input_layer.forward(batch)
        for layer in self._layers:
            x = layer.forward(x)
        targets = self._targets.index_select(0, batch).view_as(x)
        gradient: torch.Tensor | None = self._task.loss_gradient(x, targets)
        for layer in reversed(self._layers):
            assert gradient is not None
            further = self._input_layer.learns or layer is not self._layers[0]
            gradient = layer.backward(gradient, further=further)
        if gradient is not None:
            self._input_layer.backward(gradient)

    def _parameter(self, shape: Sequence[int]) -> Parameter:
        """The next parameter in the order of the vector."""
        parameter = Parameter(self._copies, self._next_entries(shape), shape, sgd=self._sgd)
        self._parameters.append(parameter)
        return parameter

    def _bias(self, layer: nn.Linear | nn.Conv2d) -> Parameter | None:
        return None if layer.bias is None else self._parameter(layer.bias.shape)

    def _next_entries(self, shape: Sequence[int]) -> slice:
        """The entries of the next parameter in the vector."""
        entries = slice(self._dim, self._dim + torch.Size(shape).numel())
        self._dim = entries.stop
        return entries

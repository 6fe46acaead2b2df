"""A linear layer whose weights are expressed by the inputs it was trained on."""

from __future__ import annotations

import torch

from fedsim.tasks.task import StackedTask
from fedsim.training.stacked.activation import Activation
from fedsim.training.stacked.input_layer import InputLayer, Shards
from fedsim.training.stacked.layer import Workspace
from fedsim.training.stacked.parameter import Parameter, Sgd

_KEPT_NUMBERS = 2**26
"""Numbers kept from round to round: a quarter of a gigabyte of float32."""


class FirstLinear(InputLayer):
    """A linear layer that takes the inputs, with its activation.

    A step moves its weights by a combination of the batch's inputs, so that they are always W = W₀ + Cᵀ X,
    with the client's inputs X (n, inputs) and coefficients C (n, outputs). Its outputs are X W₀ᵀ + X Xᵀ C:
    once both products are computed, no step reads an input or a weight again, however many epochs there are.
    That pays if a client owns no more examples than the layer has outputs; with many epochs also beyond.
    A client's products are kept: X Xᵀ for good, X W₀ᵀ as long as the rounds start at the same W₀.
    """

    learns = True

    def __init__(
        self,
        copies: int,
        task: StackedTask,
        *,
        entries: slice,
        shape: tuple[int, int],
        bias: Parameter | None,
        activation: Activation,
        sgd: Sgd,
    ) -> None:
        self._copies, self._task, self._entries, self._shape = copies, task, entries, shape
        self._bias, self._activation, self._sgd = bias, activation, sgd
        self._space = Workspace()
        self._first_weights = torch.zeros(shape)
        self._with_weights: dict[int, torch.Tensor] = {}
        self._with_inputs: dict[int, torch.Tensor] = {}

    def restart(self, start: torch.Tensor, shards: Shards) -> None:
        """Compute the products that are not known yet."""
        outputs, _ = self._shape
        weights = start[self._entries].view(self._shape)
        if not torch.equal(weights, self._first_weights):
            self._first_weights.copy_(weights)
            self._with_weights.clear()
        numbers = shards.size * (shards.size + outputs)
        if len(self._with_inputs) * numbers > _KEPT_NUMBERS:
            self._with_inputs.clear()
            self._with_weights.clear()
        for client in shards.clients:
            if client not in self._with_weights:
                # One client at a time, in the same buffer: the order of clients must not change last digits.
                x = self._inputs(shards, shards.positions[client])
                self._with_weights[client] = x @ weights.T
                if client not in self._with_inputs:
                    self._with_inputs[client] = x @ x.T
        self._shards = shards
        self._at_start = torch.cat([self._with_weights[client] for client in shards.clients])
        self._products = torch.cat([self._with_inputs[client] for client in shards.clients])
        self._learned = torch.zeros(self._copies, shards.size, outputs)
        self._velocity = torch.zeros_like(self._learned) if self._sgd.momentum else None

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(copies, length, outputs)."""
        self._batch = batch
        products = self._products.index_select(0, batch).view(self._copies, -1, self._products.shape[1])
        y = self._at_start.index_select(0, batch).view(self._copies, -1, self._shape[0])
        y.baddbmm_(products, self._learned)
        if self._bias is not None:
            y += self._bias.value[:, None]
        self._y = self._activation.apply_(y)
        return self._y

    def backward(self, gradient: torch.Tensor) -> None:
        """Take a step: the gradient in C is that in the outputs, at the rows of the batch."""
        gradient = self._activation.backward_(gradient, self._y)
        by_row, lr = gradient.flatten(0, 1), self._sgd.lr
        if self._velocity is None:
            self._learned.flatten(0, 1).index_add_(0, self._batch, by_row, alpha=-lr)
        else:
            self._velocity.mul_(self._sgd.momentum).flatten(0, 1).index_add_(0, self._batch, by_row)
            self._learned.sub_(self._velocity, alpha=lr)
        if self._bias is not None:
            self._bias.step(gradient.sum(1))

    def write_updates(self, *, out: torch.Tensor) -> None:
        """Cᵀ X, at the entries of the weights in `out` (copies, dim)."""
        mine = out[..., self._entries].view(len(out), *self._shape)
        x = self._inputs(self._shards, self._shards.all_positions)
        torch.bmm(self._learned.mT, x.view(self._copies, self._shards.size, -1), out=mine)

    def _inputs(self, shards: Shards, rows: torch.Tensor) -> torch.Tensor:
        """(rows, inputs) float32."""
        stored = shards.inputs.flatten(1)
        x = self._space.buffer("x", len(rows), stored.shape[1])
        self._task.read_rows(stored.numpy(), rows.numpy(), x.numpy())
        return x

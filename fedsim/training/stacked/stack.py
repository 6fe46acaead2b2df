"""The stack itself: from one network's vector to a trained one for each copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedsim.training.stacked.convolution import Convolution
from fedsim.training.stacked.first_linear import FirstLinear
from fedsim.training.stacked.layer import Layer
from fedsim.training.stacked.linear import Linear
from fedsim.training.stacked.parameter import Descent, Parameter
from fedsim.training.stacked.source import Album, Holdings, Source
from fedsim.training.stacked.stages import Stage


class Stack:
    """`copies` of the network of `stages`, for images of `image_shape` (channels, height, width).

    To the outside a network is a vector of length dim in torch's order of parameters, as it is for
    `FlatModel`; inside, the entries are in the order that suits the products. With `few_images`, a linear
    layer in front is a `FirstLinear`.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        copies: int,
        image_shape: tuple[int, int, int],
        descent: Descent,
        few_images: bool = False,
    ) -> None:
        self._copies, self._descent = copies, descent
        self._parameters: list[Parameter] = []
        self._dim = 0
        self._source: Source = Album(copies)
        self._layers: list[Layer] = []
        shape = image_shape
        for stage in stages:
            layer, activation = stage.layer, stage.activation
            if isinstance(layer, nn.Conv2d):
                (high, wide), (down, right) = layer.kernel_size, (int(side) for side in layer.padding)
                weight = self._parameter(layer.weight.shape)
                bias = None if layer.bias is None else self._parameter(layer.bias.shape)
                self._layers.append(
                    Convolution(weight, bias, activation, padding=(down, right), pool=stage.pool)
                )
                height, width = shape[1] + 2 * down - high + 1, shape[2] + 2 * right - wide + 1
                shape = (layer.out_channels, height // stage.pool, width // stage.pool)
            elif stage is stages[0] and few_images:
                place = self._next(layer.weight.shape)
                bias = None if layer.bias is None else self._parameter(layer.bias.shape)
                size = (layer.out_features, layer.in_features)
                self._source = FirstLinear(copies, place, size, bias, activation, descent=descent)
                shape = (layer.out_features, 1, 1)
            else:
                weight = self._parameter(layer.weight.shape)
                bias = None if layer.bias is None else self._parameter(layer.bias.shape)
                self._layers.append(Linear(weight, bias, activation))
                shape = (layer.out_features, 1, 1)
        self._classes = shape[0]

    def restart(self, start: torch.Tensor, owned: Holdings) -> None:
        """Make all copies the network `start`, (dim,), each for one of the clients who own images."""
        for parameter in self._parameters:
            parameter.restart(start)
        self._source.restart(start, owned)
        self._offsets = owned.size * torch.arange(self._copies)[:, None]
        self._hits = nn.functional.one_hot(owned.labels[owned.all_positions], self._classes).float()

    def progress(self, start: torch.Tensor, *, out: torch.Tensor) -> None:
        """How far the copies have come from `start`: `out` (copies, dim)."""
        for parameter in self._parameters:
            torch.sub(parameter.value, parameter.seen_in(start), out=parameter.seen_in(out))
        self._source.progress(out=out)

    def step(self, chosen: torch.Tensor) -> None:
        """A step down the mean cross-entropy of a batch: `chosen` (copies, length) of each one's images."""
        batch = (chosen + self._offsets).flatten()
        x = self._source.forward(batch)
        for layer in self._layers:
            x = layer.forward(x)
        hits = self._hits.index_select(0, batch).view_as(x)
        gradient: torch.Tensor | None = x.softmax(2).sub_(hits).div_(x.shape[1])
        for layer in reversed(self._layers):
            assert gradient is not None
            further = self._source.learns or layer is not self._layers[0]
            gradient = layer.backward(gradient, further=further)
        if gradient is not None:
            self._source.backward(gradient)

    def _parameter(self, shape: Sequence[int]) -> Parameter:
        """The next parameter in the order of the vector."""
        place = self._next(shape)
        parameter = Parameter(self._copies, place, shape, descent=self._descent)
        self._parameters.append(parameter)
        return parameter

    def _next(self, shape: Sequence[int]) -> slice:
        """The next entries of the vector."""
        place = slice(self._dim, self._dim + torch.Size(shape).numel())
        self._dim = place.stop
        return place

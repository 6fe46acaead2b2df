"""The stack itself: from one network's vector to a trained one for each copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedsim.stacked.convolution import Convolution
from fedsim.stacked.layer import Layer
from fedsim.stacked.linear import Linear
from fedsim.stacked.parameter import Descent, Parameter
from fedsim.stacked.stages import Stage


class Stack:
    """`copies` of the network of `stages`, for images of `image_shape` (channels, height, width).

    To the outside a network is a vector of length dim in torch's order of parameters, as it is for
    `FlatModel`; inside, the entries are in the order that suits the products.
    """

    def __init__(
        self, stages: Sequence[Stage], *, copies: int, image_shape: tuple[int, int, int], descent: Descent
    ) -> None:
        self._copies, self._descent = copies, descent
        self._parameters: list[Parameter] = []
        self._order = torch.empty(0, dtype=torch.int64)
        self._layers: list[Layer] = []
        shape = image_shape
        for stage in stages:
            if isinstance(stage.layer, nn.Conv2d):
                layer, shape = self._convolution(stage, stage.layer, shape)
            else:
                layer, shape = self._linear(stage, stage.layer, shape)
            self._layers.append(layer)

    def restart(self, start: torch.Tensor) -> None:
        """Make all copies the network `start`, (dim,)."""
        sizes = [parameter.value[0].numel() for parameter in self._parameters]
        for parameter, part in zip(self._parameters, torch.split(start[self._order], sizes), strict=True):
            parameter.restart(part.view(parameter.value.shape[1:]))

    def read(self) -> torch.Tensor:
        """The copies as they are now, (copies, dim)."""
        vectors = torch.empty(self._copies, len(self._order))
        vectors[:, self._order] = torch.cat([parameter.value.flatten(1) for parameter in self._parameters], 1)
        return vectors

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """A step down the mean cross-entropy of each copy's own batch.

        `images` (copies, batch, height, width, channels), `labels` (copies, batch).
        """
        x = images
        for layer in self._layers:
            x = layer.forward(x)
        hit = nn.functional.one_hot(labels, x.shape[2])
        gradient: torch.Tensor | None = x.softmax(2).sub_(hit).div_(x.shape[1])
        for layer in reversed(self._layers):
            assert gradient is not None
            gradient = layer.backward(gradient, further=layer is not self._layers[0])

    def _convolution(
        self, stage: Stage, layer: nn.Conv2d, shape: tuple[int, int, int]
    ) -> tuple[Layer, tuple[int, int, int]]:
        """The layer, and the shape of an image behind it."""
        _, height, width = shape
        high, wide = layer.kernel_size
        down, right = (int(side) for side in layer.padding)
        # Channels last, as in the images.
        weight = self._parameter(self._numbers(layer.weight).permute(0, 2, 3, 1))
        bias = None if layer.bias is None else self._parameter(self._numbers(layer.bias))
        convolution = Convolution(weight, bias, stage.activation, padding=(down, right), pool=stage.pool)
        return convolution, (
            layer.out_channels,
            (height + 2 * down - high + 1) // stage.pool,
            (width + 2 * right - wide + 1) // stage.pool,
        )

    def _linear(
        self, stage: Stage, layer: nn.Linear, shape: tuple[int, int, int]
    ) -> tuple[Layer, tuple[int, int, int]]:
        """The layer, and the shape of what is behind it: channels only."""
        # Inputs that were flattened from an image have their channels last, too.
        numbers = self._numbers(layer.weight).view(-1, *shape).permute(0, 2, 3, 1).flatten(1)
        weight = self._parameter(numbers)
        bias = None if layer.bias is None else self._parameter(self._numbers(layer.bias))
        return Linear(weight, bias, stage.activation), (layer.out_features, 1, 1)

    def _numbers(self, parameter: torch.Tensor) -> torch.Tensor:
        """The positions in a network's vector that the next parameter has."""
        first = len(self._order)
        return torch.arange(first, first + parameter.numel()).view(parameter.shape)

    def _parameter(self, numbers: torch.Tensor) -> Parameter:
        """The next parameter, its entries in the order of these positions."""
        self._order = torch.cat([self._order, numbers.flatten()])
        self._parameters.append(Parameter(self._copies, numbers.shape, self._descent))
        return self._parameters[-1]

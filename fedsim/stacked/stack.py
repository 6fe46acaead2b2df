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
        self._dim = 0
        self._layers: list[Layer] = []
        shape = image_shape
        for stage in stages:
            layer, activation = stage.layer, stage.activation
            if isinstance(layer, nn.Conv2d):
                (high, wide), (down, right) = layer.kernel_size, (int(side) for side in layer.padding)
                weight = self._parameter(layer.weight.shape, channels_last=True)
                bias = None if layer.bias is None else self._parameter(layer.bias.shape)
                self._layers.append(
                    Convolution(weight, bias, activation, padding=(down, right), pool=stage.pool)
                )
                height, width = shape[1] + 2 * down - high + 1, shape[2] + 2 * right - wide + 1
                shape = (layer.out_channels, height // stage.pool, width // stage.pool)
            else:
                # Behind a convolution a layer's inputs are an image with its channels last.
                is_image = bool(self._layers) and shape != (layer.in_features, 1, 1)
                inputs = shape if is_image else (layer.in_features,)
                weight = self._parameter((layer.out_features, *inputs), channels_last=is_image)
                bias = None if layer.bias is None else self._parameter(layer.bias.shape)
                self._layers.append(Linear(weight, bias, activation))
                shape = (layer.out_features, 1, 1)

    def restart(self, start: torch.Tensor) -> None:
        """Make all copies the network `start`, (dim,)."""
        for parameter in self._parameters:
            parameter.restart(start)

    def progress(self, start: torch.Tensor, *, out: torch.Tensor) -> None:
        """How far the copies have come from `start`: `out` (copies, dim)."""
        for parameter in self._parameters:
            torch.sub(parameter.value, parameter.seen_in(start), out=parameter.seen_in(out))

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """A step down the mean cross-entropy of each copy's own batch.

        `images` (copies, batch, height, width, channels), or with channels first, as in torch, if the network
        begins with a linear layer; `labels` (copies, batch).
        """
        x = images
        for layer in self._layers:
            x = layer.forward(x)
        hit = nn.functional.one_hot(labels, x.shape[2])
        gradient: torch.Tensor | None = x.softmax(2).sub_(hit).div_(x.shape[1])
        for layer in reversed(self._layers):
            assert gradient is not None
            gradient = layer.backward(gradient, further=layer is not self._layers[0])

    def _parameter(self, shape: Sequence[int], *, channels_last: bool = False) -> Parameter:
        """The next parameter in the order of the vector."""
        place = slice(self._dim, self._dim + torch.Size(shape).numel())
        self._dim = place.stop
        parameter = Parameter(self._copies, place, shape, channels_last=channels_last, descent=self._descent)
        self._parameters.append(parameter)
        return parameter

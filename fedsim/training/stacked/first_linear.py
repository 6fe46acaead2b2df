"""A linear layer right behind the images, in terms of the images."""

from __future__ import annotations

import torch

from fedsim.training.stacked.activation import Activation
from fedsim.training.stacked.developing import develop
from fedsim.training.stacked.layer import Workspace
from fedsim.training.stacked.parameter import Descent, Parameter
from fedsim.training.stacked.source import Holdings

_KEPT = 2**26
"""How many numbers are kept from round to round: a quarter of a gigabyte."""


class FirstLinear:
    """A linear layer whose inputs are the images, with its activation.

    A step moves its weights by a combination of the batch's images, so that they are always W = W₀ + Cᵀ X,
    with the owned images X (n, inputs) and coefficients C (n, outputs). What it puts out is X W₀ᵀ + X Xᵀ C:
    once both products are there, no step touches an image or a weight again, however many epochs there are.
    That pays where a copy owns no more images than the layer has outputs, with many epochs also beyond.
    A client's products are kept: the second for good, the first as long as the rounds start at the same W₀.
    """

    learns = True

    def __init__(
        self,
        copies: int,
        place: slice,
        shape: tuple[int, int],
        bias: Parameter | None,
        activation: Activation,
        *,
        descent: Descent,
    ) -> None:
        self._copies, self._place, self._shape = copies, place, shape
        self._bias, self._activation, self._descent = bias, activation, descent
        self._space = Workspace()
        self._first_weights = torch.zeros(shape)
        self._with_weights: dict[int, torch.Tensor] = {}
        self._with_images: dict[int, torch.Tensor] = {}

    def restart(self, start: torch.Tensor, owned: Holdings) -> None:
        """Take the products that are not known yet."""
        outputs, _ = self._shape
        weights = start[self._place].view(self._shape)
        if not torch.equal(weights, self._first_weights):
            self._first_weights.copy_(weights)
            self._with_weights.clear()
        numbers = owned.size * (owned.size + outputs)
        if len(self._with_images) * numbers > _KEPT:
            self._with_images.clear()
            self._with_weights.clear()
        for client in owned.clients:
            if client not in self._with_weights:
                # By itself and always in the same place: who was seen when must not show in the last digits.
                x = self._images(owned, owned.positions[client])
                self._with_weights[client] = x @ weights.T
                if client not in self._with_images:
                    self._with_images[client] = x @ x.T
        self._owned = owned
        self._at_start = torch.cat([self._with_weights[client] for client in owned.clients])
        self._products = torch.cat([self._with_images[client] for client in owned.clients])
        self._learned = torch.zeros(self._copies, owned.size, outputs)
        self._velocity = torch.zeros_like(self._learned) if self._descent.momentum else None

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(copies, size, outputs)."""
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
        gradient = self._activation.pull_back_(gradient, self._y)
        by_row, lr = gradient.flatten(0, 1), self._descent.lr
        if self._velocity is None:
            self._learned.flatten(0, 1).index_add_(0, self._batch, by_row, alpha=-lr)
        else:
            self._velocity.mul_(self._descent.momentum).flatten(0, 1).index_add_(0, self._batch, by_row)
            self._learned.sub_(self._velocity, alpha=lr)
        if self._bias is not None:
            self._bias.follow(gradient.sum(1))

    def progress(self, *, out: torch.Tensor) -> None:
        """Cᵀ X, at its place in `out` (copies, dim)."""
        mine = out[..., self._place].view(len(out), *self._shape)
        x = self._images(self._owned, self._owned.all_positions)
        torch.bmm(self._learned.mT, x.view(self._copies, self._owned.size, -1), out=mine)

    def _images(self, owned: Holdings, chosen: torch.Tensor) -> torch.Tensor:
        """(chosen, inputs) what the network sees of them."""
        images = owned.images.flatten(1)
        x = self._space.room("x", len(chosen), images.shape[1])
        develop(images.numpy(), chosen.numpy(), x.numpy())
        return x

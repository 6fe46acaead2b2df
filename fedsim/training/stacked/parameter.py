"""Parameters of stacked networks, and their gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass
class Sgd:
    """Gradient descent with momentum, as torch.optim.SGD does it; all layers of a stack share one.

    The learning rate may change whenever the stack restarts.
    """

    lr: float
    momentum: float


class Parameter:
    """One parameter of all copies.

    `value` is (copies, *shape); `entries` are its entries in a network's vector.
    """

    def __init__(self, copies: int, entries: slice, shape: Sequence[int], *, sgd: Sgd) -> None:
        self._entries, self._shape, self._sgd = entries, shape, sgd
        self.value = torch.empty(copies, *shape)
        self._velocity = torch.empty_like(self.value) if sgd.momentum else None

    def entries_of(self, vectors: torch.Tensor) -> torch.Tensor:
        """A view of this parameter's entries in vectors (…, dim): (…, *shape)."""
        return vectors[..., self._entries].view(*vectors.shape[:-1], *self._shape)

    def restart(self, start: torch.Tensor) -> None:
        """Set all copies to the vector `start` (dim,), and the velocity to zero."""
        self.value.copy_(self.entries_of(start))
        if self._velocity is not None:
            self._velocity.zero_()

    def step(self, gradient: torch.Tensor) -> None:
        """Take a step."""
        if self._velocity is not None:
            gradient = self._velocity.mul_(self._sgd.momentum).add_(gradient)
        self.value.sub_(gradient, alpha=self._sgd.lr)

    def step_by_product(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Take a step along a gradient that is a batched product, without storing the product."""
        if self._velocity is None:
            self.value.flatten(2).baddbmm_(left, right, alpha=-self._sgd.lr)
        else:
            self._velocity.flatten(2).baddbmm_(left, right, beta=self._sgd.momentum)
            self.value.sub_(self._velocity, alpha=self._sgd.lr)

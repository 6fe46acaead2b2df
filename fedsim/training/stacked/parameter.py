"""Parameters of stacked networks, and how they are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Descent:
    """Gradient descent with momentum."""

    lr: float
    momentum: float


class Parameter:
    """One parameter of all copies, which follows its gradient downhill.

    `value` is (copies, *shape). Its entries have their `place` in a network's vector.
    """

    def __init__(self, copies: int, place: slice, shape: Sequence[int], *, descent: Descent) -> None:
        self._place, self._shape, self._descent = place, shape, descent
        self.value = torch.empty(copies, *shape)
        self._velocity = torch.empty_like(self.value) if descent.momentum else None

    def seen_in(self, vectors: torch.Tensor) -> torch.Tensor:
        """The entries of (…, dim) vectors that are this parameter: (…, *shape)."""
        return vectors[..., self._place].view(*vectors.shape[:-1], *self._shape)

    def restart(self, start: torch.Tensor) -> None:
        """Begin where the vector `start` (dim,) is, in all copies and at rest."""
        self.value.copy_(self.seen_in(start))
        if self._velocity is not None:
            self._velocity.zero_()

    def follow(self, gradient: torch.Tensor) -> None:
        """Take a step."""
        if self._velocity is not None:
            gradient = self._velocity.mul_(self._descent.momentum).add_(gradient)
        self.value.sub_(gradient, alpha=self._descent.lr)

    def follow_product(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Take a step; the gradient is a batched product, which need not be written down."""
        if self._velocity is None:
            self.value.flatten(2).baddbmm_(left, right, alpha=-self._descent.lr)
        else:
            self._velocity.flatten(2).baddbmm_(left, right, beta=self._descent.momentum)
            self.value.sub_(self._velocity, alpha=self._descent.lr)

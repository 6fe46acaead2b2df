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
    """One parameter of all copies, `value` (copies, *shape), which follows its gradient downhill."""

    def __init__(self, copies: int, shape: Sequence[int], descent: Descent) -> None:
        self.value = torch.empty(copies, *shape)
        self._descent = descent
        self._velocity = torch.empty_like(self.value) if descent.momentum else None

    def restart(self, value: torch.Tensor) -> None:
        """Begin at the same value in all copies, at rest."""
        self.value.copy_(value)
        if self._velocity is not None:
            self._velocity.zero_()

    def follow(self, *parts: torch.Tensor) -> None:
        """Take a step; the gradient is the sum of the parts."""
        if self._velocity is None:
            for part in parts:
                self.value.sub_(part, alpha=self._descent.lr)
        else:
            self._velocity.mul_(self._descent.momentum)
            for part in parts:
                self._velocity.add_(part)
            self.value.sub_(self._velocity, alpha=self._descent.lr)

    def follow_product(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Take a step; the gradient is a batched product, which need not be written down."""
        if self._velocity is None:
            self.value.baddbmm_(left, right, alpha=-self._descent.lr)
        else:
            self._velocity.baddbmm_(left, right, beta=self._descent.momentum)
            self.value.sub_(self._velocity, alpha=self._descent.lr)

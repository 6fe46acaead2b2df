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

    `value` is (copies, *shape), or with channels last (copies, outputs, height, width, channels), where
    `shape` is (outputs, channels, height, width). Its entries have their `place` in a network's vector.
    """

    def __init__(
        self,
        copies: int,
        place: slice,
        shape: Sequence[int],
        *,
        channels_last: bool,
        descent: Descent,
    ) -> None:
        self._place, self._shape, self._channels_last = place, shape, channels_last
        self._descent = descent
        order = [shape[axis] for axis in (0, 2, 3, 1)] if channels_last else shape
        self.value = torch.empty(copies, *order)
        self._velocity = torch.empty_like(self.value) if descent.momentum else None

    def seen_in(self, vectors: torch.Tensor) -> torch.Tensor:
        """The entries of (…, dim) vectors that are this parameter, as they are ordered in `value`."""
        part = vectors[..., self._place].view(*vectors.shape[:-1], *self._shape)
        return part.movedim(-3, -1) if self._channels_last else part

    def restart(self, start: torch.Tensor) -> None:
        """Begin where the vector `start` (dim,) is, in all copies and at rest."""
        self.value.copy_(self.seen_in(start))
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
            self.value.flatten(2).baddbmm_(left, right, alpha=-self._descent.lr)
        else:
            self._velocity.flatten(2).baddbmm_(left, right, beta=self._descent.momentum)
            self.value.sub_(self._velocity, alpha=self._descent.lr)

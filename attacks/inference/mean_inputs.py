"""What a fully connected layer saw on average, told from how it changed.

A layer's [weights | bias] change by M X in every step of training, and so in any sum of steps: the rows of X
are the examples' inputs to the layer with a 1 appended, and M (neurons × examples) are errors, of either sign
depending on the targets. Whatever M is, the changes span the inputs, as long as there are no more
examples than neurons. The point of that span nearest to the mean input of examples at large is a mean of the
client's own inputs, with weights that are nearly equal and do not know the classes; the appended 1 gives
its scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Rows = NDArray[np.float64]

_LEAST = 0.01
"""The 1 that is appended to an input comes back as about 1 in a mean of inputs. What has less is none."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The first fully connected layer with a bias of a module, and where it stands among the parameters."""

    linear: nn.Linear
    begin: int

    @classmethod
    def first(cls, module: nn.Module) -> Self | None:
        """None where a module has no such layer."""
        begins: dict[torch.Tensor, int] = {}
        begin = 0
        for parameter in module.parameters():
            begins[parameter] = begin
            begin += parameter.numel()
        for part in module.modules():
            if isinstance(part, nn.Linear) and part.bias is not None:
                return cls(part, begins[part.weight])
        return None

    def changes(self, updates: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, neurons, inputs + 1) what updates (n, dim) do to the layer: its weights and, last, its bias."""
        neurons, inputs = self.linear.weight.shape
        end = self.begin + neurons * inputs
        weights = updates[:, self.begin : end].reshape(-1, neurons, inputs)
        return np.concatenate((weights, updates[:, end : end + neurons, None]), axis=2)

    def inputs(self, module: nn.Module, examples: torch.Tensor) -> Rows:
        """(n, inputs) what the layer sees of each example; where it sees several positions, their mean."""
        seen: list[torch.Tensor] = []

        def look(layer: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            seen.append(arguments[0].reshape(len(arguments[0]), -1, self.linear.in_features).mean(dim=1))

        handle = self.linear.register_forward_pre_hook(look)
        with torch.inference_mode():
            for batch in torch.split(examples, 500):
                module(batch)
        handle.remove()
        return torch.cat(seen).double().numpy()


def mean_inputs(changes: NDArray[np.float32], typical: Rows, damping: float) -> Rows:
    """(n, inputs) for each of the changes (n, neurons, inputs + 1) the mean of the inputs behind it.

    `typical` (inputs,) is the mean input of examples at large. Directions whose squared size is below
    `damping` times the largest one's are noise rather than span, and count for little. Where the
    change tells no mean, because a defence left out the layer or its bias, nothing is known about the client:
    it is `typical`.
    """
    target = np.append(typical, 1.0)
    found = np.empty((len(changes), len(typical)))
    for row, change in zip(found, changes.astype(np.float64), strict=True):
        row[:] = typical
        size, V = np.linalg.eigh(change @ change.T)
        if size[-1] <= 0:
            continue
        nearest = (V @ (V.T @ (change @ target) / (size + damping * size[-1]))) @ change
        if nearest[-1] >= _LEAST:
            row[:] = nearest[:-1] / nearest[-1]
    return found

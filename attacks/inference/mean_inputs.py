"""The mean input of a fully connected layer during training, from the layer's change.

Every step of training changes [weights | bias] by M X, and so does any sum of steps. The rows of X are the
examples' inputs to the layer with a 1 appended; M (neurons × examples) are errors, whose signs depend on the
targets. Whatever M is, the changes span the inputs, as long as there are no more examples than neurons. The
point of that span nearest to the population's mean input is a mean of the client's own inputs, with nearly
equal weights that do not depend on the targets. The appended 1 gives its scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Rows = NDArray[np.float64]

_LEAST_APPENDED = 0.01
"""Least value of the appended entry, which is about 1 in a true mean of inputs."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The first fully connected layer with a bias in a module; `begin` is its offset in the parameters."""

    linear: nn.Linear
    begin: int

    @classmethod
    def first(cls, module: nn.Module) -> Self | None:
        """The layer, or None if the module has no such layer."""
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
        """(n, neurons, inputs + 1) the changes of the layer's weights and, last, bias in updates (n, dim)."""
        neurons, inputs = self.linear.weight.shape
        end = self.begin + neurons * inputs
        weights = updates[:, self.begin : end].reshape(-1, neurons, inputs)
        return np.concatenate((weights, updates[:, end : end + neurons, None]), axis=2)

    def inputs(self, module: nn.Module, examples: torch.Tensor) -> Rows:
        """(n, inputs) the layer's input for each example; the mean over positions if there are several."""
        seen: list[torch.Tensor] = []

        def look(layer: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            seen.append(arguments[0].reshape(len(arguments[0]), -1, self.linear.in_features).mean(dim=1))

        handle = self.linear.register_forward_pre_hook(look)
        with torch.inference_mode():
            for batch in torch.split(examples, 500):
                module(batch)
        handle.remove()
        return torch.cat(seen).cpu().double().numpy()


def mean_inputs(changes: NDArray[np.float32], typical: Rows, damping: float) -> Rows:
    """(n, inputs) the mean input behind each of the changes (n, neurons, inputs + 1).

    `typical` (inputs,) is the population's mean input. Directions whose squared size is below `damping` times
    the largest count as noise and are damped. If a change does not reveal a mean, because a defence removed
    the layer or its bias, the result is `typical`.
    """
    target = np.append(typical, 1.0)
    found = np.empty((len(changes), len(typical)))
    for row, change in zip(found, changes.astype(np.float64), strict=True):
        row[:] = typical
        size, V = np.linalg.eigh(change @ change.T)
        if size[-1] <= 0:
            continue
        nearest = (V @ (V.T @ (change @ target) / (size + damping * size[-1]))) @ change
        if nearest[-1] >= _LEAST_APPENDED:
            row[:] = nearest[:-1] / nearest[-1]
    return found

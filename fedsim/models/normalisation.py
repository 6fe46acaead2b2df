"""Normalisation layers of the library's networks, and the place of their running statistics.

A layer that normalises by batch keeps a running mean and variance beside its parameters. There are four
places for them. *Shared*: they are part of a model and of an update, after the parameters, and the server
averages them as it averages weights. *Local*: they leave no device. Devices train with the statistics of
their batches, so local statistics change no update, and the server evaluates with the statistics of test
batches. *FedBN*: so does the layer's scale and shift; every device has its own, and the server keeps the
first ones. *Frozen*: the layer normalises by its initial statistics, which never change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

Norm = Literal["group", "layer", "batch"]
Statistics = Literal["shared", "local", "fedbn", "frozen"]

GROUPS = 8


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation by statistics that never change; only scale and shift learn."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.eval()

    def train(self, mode: bool = True) -> FrozenBatchNorm2d:
        """Stay in evaluation mode."""
        return super().train(False)


class OwnBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation by the statistics of the batch, with a scale and shift of each device's own."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)


def local_entries(module: nn.Module) -> NDArray[np.bool_]:
    """(dim,) True for entries of a model that stay on its device, in the order of a flat model."""
    own = {
        id(p) for layer in module.modules() if isinstance(layer, OwnBatchNorm2d) for p in layer.parameters()
    }
    tensors = [*module.parameters(), *running_statistics(module)]
    return np.concatenate([np.full(t.numel(), id(t) in own) for t in tensors])


def normalisation(norm: Norm, statistics: Statistics, channels: int) -> nn.Module:
    """A layer that normalises (n, channels, height, width)."""
    if norm == "group":
        return nn.GroupNorm(GROUPS, channels)
    if norm == "layer":
        return nn.GroupNorm(1, channels)
    if statistics == "frozen":
        return FrozenBatchNorm2d(channels)
    if statistics == "fedbn":
        return OwnBatchNorm2d(channels)
    return nn.BatchNorm2d(channels, track_running_stats=statistics == "shared")


def running_statistics(module: nn.Module) -> list[torch.Tensor]:
    """Means and variances that training changes, in the order of the layers: they are part of an update."""
    return [
        tensor
        for layer in _tracking(module)
        for tensor in (layer.running_mean, layer.running_var)
        if tensor is not None
    ]


def batch_counters(module: nn.Module) -> list[torch.Tensor]:
    """The numbers of batches that these layers have seen: part of no update, they start at zero."""
    counters = (layer.num_batches_tracked for layer in _tracking(module))
    return [counter for counter in counters if counter is not None]


def normalises_by_batch(module: nn.Module) -> bool:
    """Whether training needs batches of at least two examples."""
    batch_norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    layers = (layer for layer in module.modules() if isinstance(layer, batch_norm))
    return any(not isinstance(layer, FrozenBatchNorm2d) for layer in layers)


def _tracking(module: nn.Module) -> Iterator[_NormBase]:
    for layer in module.modules():
        is_frozen = isinstance(layer, FrozenBatchNorm2d)
        if isinstance(layer, _NormBase) and layer.track_running_stats and not is_frozen:
            yield layer

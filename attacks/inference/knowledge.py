"""The server's knowledge besides its view: its own settings, and data that the scenario grants."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsim.models.architecture import Architecture
from fedsim.tasks.task import Task
from fedsim.training.local_work import LocalWork

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """Examples that no client trains on, and that the attacker could collect.

    `inputs` (n, …) and `targets` (n, …) as the task stores them, `attributes` name → (n,) bool.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    attributes: Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The server's own architecture, task and training settings, and auxiliary examples if granted.

    Clients train as `local_training.local_update` does: in training mode, on the task's inputs and loss.
    """

    model: Architecture
    task: Task
    work: LocalWork
    auxiliary: Auxiliary
    device: str = "cpu"
    """torch's name of the device on which the attacker optimises guesses and trains shadows."""
    notes: dict[Hashable, Any] = field(default_factory=dict)
    """A cache for results that depend only on the other fields, so that all evidence can share them."""

    @cached_property
    def module(self) -> nn.Module:
        """The network in training mode, as clients run it. Its parameters are arbitrary."""
        from fedsim.training.local_training import initial_model

        return initial_model(self.model, self.task, np.random.default_rng(0)).train()

    @cached_property
    def module_on_device(self) -> nn.Module:
        """The same network on the attacker's device."""
        return self.module if self.device == "cpu" else copy.deepcopy(self.module).to(self.device)

    @cached_property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that an update begins with."""
        return tuple(tuple(p.shape) for p in self.module.parameters())

    def layers(self, vector: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """A model's vector, or an update, split into the model's parameters; statistics follow them."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.layer_shapes])
        pieces = np.split(vector, ends)[:-1]
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.layer_shapes, strict=True)]

    def tensors(self, vector: NDArray[np.float32], dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        """The same parameters as tensors on the attacker's device."""
        import torch

        return [torch.from_numpy(np.array(part)).to(self.device, dtype) for part in self.layers(vector)]

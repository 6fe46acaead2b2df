"""What training, evaluation, models and attacks need to know about a task.

Nothing here imports torch when it is loaded: scenario files are read without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Inputs:
    """What a network gets to see of one example: an array with these axes.

    `integer` inputs are codes, such as tokens, which a network has to embed; all others are float32.
    """

    axes: tuple[str, ...]
    integer: bool = False

    def __str__(self) -> str:
        return f"{'integers' if self.integer else 'numbers'} ({', '.join(self.axes)})"


@dataclass(frozen=True)
class Metric:
    """The figure of merit on test examples."""

    name: str
    higher_is_better: bool


class Task(ABC):
    """What a network is trained for; a frozen dataclass that knows the shapes of its examples.

    `stored` arrays are examples as a data set keeps them: inputs (n, …) of any dtype, targets (n, …).
    `outputs` tensors are what a network puts out for n inputs: (n, *output_shape).
    """

    title: ClassVar[str]
    """The task in error messages, such as "regression"."""
    noun: ClassVar[str]
    """Several examples in messages and tables, such as "rows"."""
    inputs: ClassVar[Inputs]
    """What a model has to take."""
    metric: ClassVar[Metric]
    evaluation_batch: ClassVar[int] = 500
    """Examples per forward pass of an evaluation: more would only take memory."""

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, along the axes of `inputs`."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The numbers that a model puts out per prediction."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a model's outputs for one input: one prediction, unless a task makes several."""
        return (self.outputs,)

    @property
    @abstractmethod
    def signature(self) -> str:
        """Text that differs between tasks whose examples could be the same arrays; part of fingerprints."""

    @abstractmethod
    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """A `ValueError` about stored examples that are none of this task; `part` is "train" or "test"."""

    @abstractmethod
    def as_inputs(self, stored: NDArray[Any]) -> torch.Tensor:
        """Stored inputs as a network sees them, (n, *input_shape)."""

    def as_targets(self, stored: NDArray[Any]) -> torch.Tensor:
        """Stored targets as the loss takes them; they may share memory."""
        import torch

        return torch.from_numpy(stored)

    @abstractmethod
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The scalar that training minimises: a mean over the batch."""

    @abstractmethod
    def metric_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Per prediction, the number whose mean over all test examples gives the metric."""

    def metric_of(self, mean: float) -> float:
        """The metric from the mean of its terms: itself, unless a task transforms it."""
        return mean

    def further_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """The terms of other figures of merit, by name; most tasks have none."""
        return {}

    def further_of(self, name: str, mean: float) -> float:
        """Such a figure from the mean of its terms."""
        return mean

    def summary(self, targets: NDArray[Any]) -> Mapping[str, str]:
        """Lines that describe the data set to a user, by title; `targets` are those of the training part."""
        return {}

    def stacked(self) -> StackedTask | None:
        """The task for networks trained side by side; None if its clients are trained one by one."""
        return None


class StackedTask(ABC):
    """A task for `fedsim.training.stacked`, which computes gradients by hand.

    Networks of several copies are trained at once; `outputs` and `targets` are (copies, batch, outputs).
    """

    @abstractmethod
    def arranged(self, stored: NDArray[Any]) -> torch.Tensor:
        """Stored inputs with the axes of an input, (n, *input_shape): contiguous, of any dtype."""

    @abstractmethod
    def read_rows(self, arranged: NDArray[Any], rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Write the inputs of some rows to `out` (rows, numbers); `arranged` is flat, (n, numbers)."""

    @abstractmethod
    def encoded(self, targets: torch.Tensor) -> torch.Tensor:
        """Targets (n, …) as `loss_gradient` takes them, (n, outputs) float32."""

    @abstractmethod
    def loss_gradient(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The gradient of every copy's mean loss in its outputs, (copies, batch, outputs)."""

"""Rows of numbers, with a class or a number to predict from each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.classification import Classification
from fedsim.tasks.task import Inputs, Metric, Task

if TYPE_CHECKING:
    import torch

ROW_INPUTS = Inputs(axes=("features",))


class TableTask(Task):
    """What both tasks on tables share: inputs (n, features) float32."""

    title: ClassVar[str] = "a table"
    noun: ClassVar[str] = "rows"
    inputs: ClassVar[Inputs] = ROW_INPUTS

    features: tuple[str, ...]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The features of a row."""
        return (len(self.features),)

    def as_inputs(self, stored: NDArray[Any]) -> torch.Tensor:
        """The numbers as they are."""
        import torch

        return torch.from_numpy(stored)

    def check_rows(self, part: str, inputs: NDArray[Any]) -> None:
        """A `ValueError` about inputs that are no rows of this table."""
        if inputs.shape[1:] != self.input_shape or inputs.dtype != np.float32:
            raise ValueError(f"{part} rows: expected (n, {len(self.features)}) float32, got {inputs.shape}")


@dataclass(frozen=True)
class RowClassification(TableTask, Classification):
    """A class per row."""

    features: tuple[str, ...]

    title: ClassVar[str] = "classification of rows"

    @property
    def signature(self) -> str:
        """The names of classes and features."""
        return repr((self.class_names, self.features))

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Inputs have to be rows, and labels classes."""
        self.check_rows(part, inputs)
        super().check(part, inputs, targets)


@dataclass(frozen=True)
class RowRegression(TableTask):
    """A number per row, scaled to a standard deviation of one; the metric is R², the explained variance."""

    features: tuple[str, ...]

    title: ClassVar[str] = "regression on rows"
    metric: ClassVar[Metric] = Metric("r2", higher_is_better=True)

    @property
    def outputs(self) -> int:
        """One number."""
        return 1

    @property
    def signature(self) -> str:
        """The names of the features."""
        return repr(self.features)

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Targets have to be numbers."""
        self.check_rows(part, inputs)
        if targets.ndim != 1 or targets.dtype != np.float32:
            raise ValueError(f"{part} targets: expected (n,) float32, got {targets.shape} {targets.dtype}")

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean squared error."""
        from torch.nn.functional import mse_loss

        return mse_loss(outputs[:, 0], targets)

    def metric_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Squared errors; the targets have a variance of one."""
        return (outputs[:, 0] - targets) ** 2

    def metric_of(self, mean: float) -> float:
        """One minus the mean squared error: 0 for predicting the mean, 1 for no error."""
        return 1 - mean

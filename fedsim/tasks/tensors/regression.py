"""Tensors with numbers to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from fedsim.tasks.task import Inputs, Metric, Task
from fedsim.tasks.tensors.numbers import NUMBER_INPUTS, as_numbers, check_numbers

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TensorRegression(Task):
    """Tensors (n, *stored_shape), each with `numbers` targets: (n, numbers) float32."""

    stored_shape: tuple[int, ...]
    numbers: int

    title: ClassVar[str] = "regression"
    noun: ClassVar[str] = "rows"
    inputs: ClassVar[Inputs] = NUMBER_INPUTS
    metric: ClassVar[Metric] = Metric("mean squared error", higher_is_better=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """As they are stored."""
        return self.stored_shape

    @property
    def outputs(self) -> int:
        """One per target."""
        return self.numbers

    @property
    def signature(self) -> str:
        """The number of targets."""
        return f"regression of {self.numbers}"

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Inputs and targets have to be finite numbers."""
        check_numbers(f"{part} inputs", inputs)
        check_numbers(f"{part} targets", targets)
        if targets.shape[1:] != (self.numbers,):
            raise ValueError(f"{part} targets: expected (n, {self.numbers}), got {targets.shape}")

    def as_inputs(self, stored: NDArray[Any]) -> torch.Tensor:
        """(n, *stored_shape) float32."""
        return as_numbers(stored)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean squared error."""
        from torch.nn.functional import mse_loss

        return mse_loss(outputs, targets)

    def metric_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """(n,) the squared error of each row."""
        return (outputs - targets).square().mean(dim=1)

"""Labelled tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from fedsim.tasks.classification import Classification
from fedsim.tasks.task import Inputs
from fedsim.tasks.tensors.numbers import NUMBER_INPUTS, as_numbers, check_numbers

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TensorClassification(Classification):
    """Tensors (n, *stored_shape) of any numbers in classes; a network sees them as float32, unchanged."""

    stored_shape: tuple[int, ...]

    title: ClassVar[str] = "classification of tensors"
    noun: ClassVar[str] = "rows"
    inputs: ClassVar[Inputs] = NUMBER_INPUTS

    @property
    def input_shape(self) -> tuple[int, ...]:
        """As they are stored."""
        return self.stored_shape

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Inputs have to be finite numbers, and labels classes."""
        check_numbers(f"{part} inputs", inputs)
        super().check(part, inputs, targets)

    def as_inputs(self, stored: NDArray[Any]) -> torch.Tensor:
        """(n, *stored_shape) float32."""
        return as_numbers(stored)

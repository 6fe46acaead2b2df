"""Classification of anything: cross-entropy and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.task import Metric, Task

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Classification(Task):
    """One of several classes per example: targets are labels, (n,) int64 in `range(len(class_names))`."""

    class_names: tuple[str, ...]

    title: ClassVar[str] = "classification"
    metric: ClassVar[Metric] = Metric("accuracy", higher_is_better=True)

    @property
    def outputs(self) -> int:
        """One logit per class."""
        return len(self.class_names)

    @property
    def signature(self) -> str:
        """The class names: labels are numbers, and mean nothing without them."""
        return repr(self.class_names)

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Labels have to be classes."""
        if targets.ndim != 1 or targets.dtype != np.int64:
            raise ValueError(f"{part} labels: expected (n,) int64, got {targets.shape} {targets.dtype}")
        if not 0 <= targets.min() <= targets.max() < self.outputs:
            raise ValueError(f"{part} labels: expected 0..{self.outputs - 1}")

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the batch; targets may also be probabilities (n, classes)."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, targets)

    def metric_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """(n,) whether the largest logit is that of the label."""
        return outputs.argmax(1) == targets

    def summary(self, targets: NDArray[Any]) -> Mapping[str, str]:
        """How many classes there are, and how even they are."""
        sizes = np.bincount(targets, minlength=self.outputs)
        return {
            "classes": f"{self.outputs}, with {sizes.min()} to {sizes.max()} training {self.noun}",
        }

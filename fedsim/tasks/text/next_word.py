"""Next-word prediction: after every token of a text, the token that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.task import Inputs, Metric, Task

if TYPE_CHECKING:
    import torch

PADDING = 0
"""The token that fills up the last piece of a text. Nothing is predicted after it."""
NO_TARGET = -1
"""Target where nothing is to be predicted."""


@dataclass(frozen=True)
class NextWord(Task):
    """Pieces of text (n, length) int32 as token numbers.

    Targets (n, length) int64 are the tokens that follow. `vocabulary` names the tokens; number 0 is padding.
    """

    vocabulary: tuple[str, ...]
    length: int

    title: ClassVar[str] = "next-word prediction"
    noun: ClassVar[str] = "sequences"
    inputs: ClassVar[Inputs] = Inputs(axes=("tokens",), integer=True)
    metric: ClassVar[Metric] = Metric("accuracy", higher_is_better=True)
    # A sequence puts out as many numbers as the vocabulary has tokens, for each of its positions.
    evaluation_batch: ClassVar[int] = 32

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The positions of a piece."""
        return (self.length,)

    @property
    def outputs(self) -> int:
        """One logit per token."""
        return len(self.vocabulary)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """A prediction at every position."""
        return (self.length, self.outputs)

    @property
    def signature(self) -> str:
        """The tokens: numbers mean nothing without them."""
        return repr(self.vocabulary)

    def check(self, part: str, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Tokens have to be in the vocabulary."""
        shape = (self.length,)
        if inputs.shape[1:] != shape or targets.shape[1:] != shape or inputs.dtype != np.int32:
            raise ValueError(f"{part} sequences: expected (n, {self.length}) tokens, got {inputs.shape}")
        if not 0 <= inputs.min() <= inputs.max() < self.outputs:
            raise ValueError(f"{part} sequences: expected tokens 0..{self.outputs - 1}")
        if not NO_TARGET <= targets.min() <= targets.max() < self.outputs:
            raise ValueError(
                f"{part} targets: expected tokens 0..{self.outputs - 1}, or {NO_TARGET} for none"
            )

    def as_inputs(self, stored: NDArray[Any]) -> torch.Tensor:
        """The token numbers."""
        import torch

        return torch.from_numpy(stored.astype(np.int64))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy over the tokens that are to be predicted."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)

    def metric_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Whether the largest logit is that of the token that follows, per prediction."""
        wanted = targets != NO_TARGET
        return outputs.argmax(2)[wanted] == targets[wanted]

    def further_terms(self, outputs: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """The surprise at every token, from which the perplexity follows."""
        from torch.nn.functional import cross_entropy

        wanted = targets != NO_TARGET
        return {"perplexity": cross_entropy(outputs[wanted], targets[wanted], reduction="none")}

    def further_of(self, name: str, mean: float) -> float:
        """The perplexity is the exponential of the mean surprise."""
        return math.exp(min(mean, 700.0))

    def summary(self, targets: NDArray[Any]) -> Mapping[str, str]:
        """How many tokens there are."""
        return {"vocabulary": f"{self.outputs} tokens", "predictions": f"{(targets != NO_TARGET).sum()}"}

    def unigram_perplexity(self, train: NDArray[Any], test: NDArray[Any]) -> float:
        """Perplexity on targets `test` of a model that knows only how frequent tokens are in `train`.

        One is added to every frequency, so that no token is impossible.
        """
        seen = np.bincount(train[train != NO_TARGET], minlength=self.outputs) + 1.0
        wanted = test[test != NO_TARGET]
        return float(np.exp(-np.log(seen[wanted] / seen.sum()).mean()))

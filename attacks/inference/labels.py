"""The label histogram of a client's examples, from the change of the model's last layer."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.inference.needs import LayerNeed
from fedsim.tasks.classification import Classification
from fedsim.tasks.task import Task
from fedsim.training.local_work import LocalWork


class LabelInference(InferenceAttack):
    """Infers a client's label histogram from the change of the output layer.

    The gradient of the last bias is the mean predicted probability minus the share of each class among the
    examples. The change of the bias over all local steps, divided by the total step length, estimates this
    difference. The prediction is computed with the parameters halfway through training, on the typical input
    of the last layer. The changes of weights and bias give this input: they differ by it as a factor.
    """

    kind: ClassVar[Kind] = "label_inference"
    needs_task: ClassVar[type[Task]] = Classification
    needs_layer: ClassVar[LayerNeed | None] = LayerNeed.LAST
    name: Literal["label_inference"] = "label_inference"

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n, classes) shares of the classes among the examples behind every row."""
        rows = zip(evidence.updates, evidence.starts, strict=True)
        return Guesses(np.stack([label_shares(update, start, knowledge) for update, start in rows]))


def label_shares(
    update: NDArray[np.float32], start: NDArray[np.float32], knowledge: Knowledge
) -> NDArray[np.float32]:
    """(classes,) the shares of the classes among the examples that an update was trained on."""
    *_, weight_change, bias_change = (tensor.astype(np.float64) for tensor in knowledge.layers(update))
    *_, weight, bias = (tensor.astype(np.float64) for tensor in knowledge.layers(start))
    # The gradient of a row of weights is the gradient of its bias times the layer's input. If inputs differ,
    # this is the least-squares fit over the rows.
    typical_input = bias_change @ weight_change / max(float(bias_change @ bias_change), 1e-30)
    halfway = (weight + weight_change / 2) @ typical_input + bias + bias_change / 2
    predicted = np.exp(halfway - halfway.max())
    predicted /= predicted.sum()
    return _nearest_shares(predicted + bias_change / total_step(knowledge.work)).astype(np.float32)


def total_step(work: LocalWork) -> float:
    """The distance that a constant gradient of length one moves the model over all local steps."""
    velocity = np.cumsum(work.momentum ** np.arange(work.steps))
    return work.lr * float(velocity.sum())


def _nearest_shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The projection of `values` on the probability simplex: subtract a constant, and clip at zero."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    cut = float(excess[np.flatnonzero(descending > excess)[-1]])
    return np.asarray(np.maximum(values - cut, 0))

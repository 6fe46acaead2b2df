"""Which classes a client's examples are of, from what training did to the model's last layer."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from fedsim.core.errors import UserError
from fedsim.tasks.classification import Classification
from fedsim.tasks.task import Task
from fedsim.training.local_work import LocalWork


class LabelInference(InferenceAttack):
    """The client's label histogram, from the output layer's change.

    The gradient of the last bias is the mean of predicted probabilities minus the share of each class
    among the examples. The change of the bias over all local steps, divided by how far the steps reach in
    all, gives the difference of the two; the predictions are those of the model halfway, on the typical
    input of its last layer, which is the direction that bias and weights of the layer have in common.
    """

    kind: ClassVar[Kind] = "label_inference"
    needs: ClassVar[type[Task]] = Classification
    name: Literal["label_inference"] = "label_inference"

    def check(self, knowledge: Knowledge) -> None:
        """The model has to end in a linear layer with a bias."""
        super().check(knowledge)
        shapes = knowledge.layer_shapes
        if len(shapes) < 2 or len(shapes[-2]) != 2 or shapes[-1] != (knowledge.task.outputs,):
            raise UserError(
                f"attack.inference: {self.name} needs a model that ends in a linear layer with a bias"
            )

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
    # The gradient of a row of the weights is that of its bias times the layer's input: the same for all
    # rows if all inputs were alike, and the best compromise otherwise.
    typical_input = bias_change @ weight_change / max(float(bias_change @ bias_change), 1e-30)
    halfway = (weight + weight_change / 2) @ typical_input + bias + bias_change / 2
    predicted = np.exp(halfway - halfway.max())
    predicted /= predicted.sum()
    return _nearest_shares(predicted + bias_change / reach(knowledge.work)).astype(np.float32)


def reach(work: LocalWork) -> float:
    """How far a constant gradient of length one moves the model in all local steps."""
    steps = work.local_epochs * work.batches_per_epoch
    velocity = np.cumsum(work.momentum ** np.arange(steps))
    return work.lr * float(velocity.sum())


def _nearest_shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The point of the simplex nearest to `values`: subtract a constant, cut at zero."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    cut = float(excess[np.flatnonzero(descending > excess)[-1]])
    return np.asarray(np.maximum(values - cut, 0))

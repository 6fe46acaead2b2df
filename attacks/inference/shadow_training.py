"""Shadow training: how updates with and without a property look, learned from auxiliary examples.

The examples are split into folds. Each fold makes updates as clients do, with and without the property among
the examples. A classifier learns the property from the other folds, as a direction among the inputs of a
layer. A classifier fits the examples that it has learned from better than other clients' examples. Applied to
updates from the same examples, it would separate them further than it separates clients' updates.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Watch
from attacks.inference.knowledge import Knowledge
from attacks.inference.mean_inputs import Layer, mean_inputs

FOLDS = 4
"""Folds of the auxiliary examples."""
LEAST_INPUT_VARIANCE = 0.01
"""Least variance, relative to the mean one, of an input that a classifier uses. Scaling would amplify an
input that hardly varies among the auxiliary examples, and a client whose example moves it would dominate the
score of every update that it contributes to."""
CLASSIFIER_PENALTY = 1e-4
"""Inverse regularisation of the classifiers: there are more inputs than examples."""


@dataclass(frozen=True, eq=False)
class Fold:
    """The updates of one fold of the auxiliary examples, and the classifier of the other folds.

    `classifier` predicts the property from inputs to the layer, without the examples of this fold. `changes`
    (2 × updates, neurons, inputs + 1) are those of the layer: first with the property, then without.
    """

    classifier: Any
    changes: NDArray[np.float32]

    def cohort_means(
        self, clients: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Mean changes of `clients` clients, one or none of whom has the property, and whether one has it."""
        changes = self.changes
        has = np.arange(len(changes)) < len(changes) // 2
        if clients == 1:
            return changes, has
        lacking = changes[~has]
        # With replacement: a dozen updates are enough for sums of a hundred.
        chosen = rng.integers(len(lacking), size=(len(changes), clients - 1))
        sums = np.stack(
            [target + lacking[row].sum(axis=0) for target, row in zip(changes, chosen, strict=True)]
        )
        return np.asarray(sums / clients, dtype=np.float32), has


@dataclass(frozen=True, eq=False)
class Shadows:
    """All folds for one model; `typical` (inputs,) is the mean input to the `layer`."""

    layer: Layer
    typical: NDArray[np.float64]
    folds: list[Fold]

    def mean_inputs(self, changes: NDArray[np.float32], damping: float) -> NDArray[np.float64]:
        """(n, inputs) the mean inputs behind changes of the layer."""
        return mean_inputs(changes, self.typical, damping)


def train_shadows(
    has: NDArray[np.bool_],
    start: NDArray[np.float32],
    knowledge: Knowledge,
    *,
    positives: int,
    updates: int,
    rng: np.random.Generator,
    watch: Watch,
) -> Shadows:
    """About `updates` updates with the property, and as many without, from the model `start`.

    `has` says which auxiliary examples have the property; `positives` of them are in an update with it.
    """
    import torch
    from sklearn.feature_selection import VarianceThreshold
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from fedsim.training.local_training import FlatModel, local_update

    auxiliary, task, size = knowledge.auxiliary, knowledge.task, knowledge.work.dataset_size
    device = torch.device(knowledge.device)
    examples = task.as_inputs(auxiliary.inputs).to(device)
    targets = task.as_targets(auxiliary.targets).to(device)
    model = FlatModel(copy.deepcopy(knowledge.module), device)
    model.load(start)
    layer = Layer.first(model.module)
    assert layer is not None, "check() has seen to it"
    inputs = layer.inputs(model.module, examples)
    each = -(-updates // FOLDS)
    folds: list[Fold] = []
    split = StratifiedKFold(FOLDS, shuffle=True, random_state=int(rng.integers(2**31)))
    for others, own in split.split(inputs, has):
        classifier = make_pipeline(
            VarianceThreshold(LEAST_INPUT_VARIANCE * inputs[others].var(axis=0).mean()),
            StandardScaler(),
            LogisticRegression(C=CLASSIFIER_PENALTY, class_weight="balanced", max_iter=1000),
        ).fit(inputs[others], has[others])
        changes = []
        for number in range(2 * each):
            wanted = positives if number < each else 0
            drawn = [
                rng.choice(own[has[own]], wanted, replace=False),
                rng.choice(own[~has[own]], size - wanted, replace=False),
            ]
            chosen = torch.from_numpy(np.concatenate(drawn)).to(device)
            update = local_update(
                model,
                start,
                inputs=examples[chosen],
                targets=targets[chosen],
                loss=task.loss,
                settings=knowledge.work,
                rng=rng,
            )
            changes.append(layer.changes(update[None])[0])
            watch(len(folds) * 2 * each + number + 1, FOLDS * 2 * each)
        folds.append(Fold(classifier, np.array(changes)))
    return Shadows(layer, inputs.mean(axis=0), folds)

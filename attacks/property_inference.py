"""Whether a client's images have a property that has nothing to do with the task (Melis et al. 2018).

The attacker holds auxiliary images, some with the property. They show it how the property looks to a layer of
the model that it sends: a direction among the layer's inputs. It also trains on them as clients do, with and
without the property among the images. How far such labelled updates, or sums of them, go in that direction
shows how far is far enough.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from attacks.evidence import Evidence
from attacks.inference import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.knowledge import Knowledge
from fedsim.errors import UserError

if TYPE_CHECKING:
    from attacks.mean_inputs import Layer


class PropertyInference(InferenceAttack):
    """Tells clients with a property from those without, by what the model sees of auxiliary images.

    A logistic regression on the inputs of the first fully connected layer learns the property from single
    images. An update's score is the regression's at the mean of the inputs that the update tells; `updates`
    of each kind, made from auxiliary images, turn scores into probabilities.
    """

    kind: ClassVar[Kind] = "property_inference"
    name: Literal["property_inference"] = "property_inference"
    property: str
    """An attribute of the images."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The part of a client's images that has the property if the client has it."""
    updates: PositiveInt = 50
    damping: PositiveFloat = 3e-5
    """Squared size, relative to the largest, below which a direction of an update is taken for noise."""

    def positives(self, size: int) -> int:
        """How many of `size` images have the property if the client has it."""
        return max(1, round(self.share * size))

    def check(self, knowledge: Knowledge) -> None:
        """A layer to look at, and auxiliary images for a client with the property and for one without."""
        from attacks.mean_inputs import Layer

        if Layer.first(knowledge.module) is None:
            raise UserError(
                f"attack.inference: {self.name} needs a model with a fully connected layer that has a bias; "
                f"model {knowledge.model.name} has none"
            )
        there, size = knowledge.auxiliary, knowledge.work.dataset_size
        if not len(there.labels):
            raise UserError(
                f"attack.inference: {self.name} needs auxiliary images: set attack.auxiliary_images"
            )
        if self.property not in there.attributes:
            known = ", ".join(there.attributes) or "none: these images have no attributes"
            raise UserError(
                f"attack.inference: {self.name}: property is {self.property!r}: expected one of {known}"
            )
        having, wanted = int(there.attributes[self.property].sum()), self.positives(size)
        if having < wanted or len(there.labels) - having < size:
            raise UserError(
                f"attack.inference: {self.name} needs {wanted} auxiliary images with {self.property!r} and "
                f"{size} without; of the {len(there.labels)} granted, {having} have it: raise "
                f"attack.auxiliary_images, or choose another property"
            )

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n,) the probability that one of the clients behind each row has the property."""
        from sklearn.linear_model import LogisticRegression

        start = evidence.starts.mean(axis=0, dtype=np.float64).astype(np.float32)
        seed = int(rng.integers(2**63))
        key = (self, start.tobytes(), seed)
        if key not in knowledge.notes:
            # Updates are dear, and sums of all sizes can be learned from the same ones.
            knowledge.notes[key] = _learn(self, start, knowledge, np.random.default_rng(seed), watch)
        lesson: _Lesson = knowledge.notes[key]
        sums, answers = _sums(lesson.changes, evidence.clients, rng)
        far_enough = LogisticRegression().fit(lesson.scores(sums, self.damping), answers)
        scores = lesson.scores(lesson.layer.changes(evidence.updates), self.damping)
        probability = far_enough.predict_proba(scores)[:, 1]
        return Guesses(probability.astype(np.float32), len(lesson.changes))


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What auxiliary images teach about one model.

    `direction` is a classifier of inputs to the `layer`, `typical` (inputs,) their mean, `changes`
    (2 × updates, neurons, inputs + 1) what local training does to it: first with the property, then without.
    """

    layer: Layer
    direction: Any
    typical: NDArray[np.float64]
    changes: NDArray[np.float32]

    def scores(self, changes: NDArray[np.float32], damping: float) -> NDArray[np.float64]:
        """(n, 1) how much the mean inputs behind these changes look like the property."""
        from attacks.mean_inputs import mean_inputs

        score = self.direction.decision_function(mean_inputs(changes, self.typical, damping))
        return np.asarray(score, dtype=np.float64)[:, None]


def _learn(
    attack: PropertyInference,
    start: NDArray[np.float32],
    knowledge: Knowledge,
    rng: np.random.Generator,
    watch: Watch,
) -> _Lesson:
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from attacks.mean_inputs import Layer
    from fedsim.training import FlatModel, as_input, local_update

    there, size = knowledge.auxiliary, knowledge.work.dataset_size
    images, labels, has = (
        as_input(there.images),
        torch.from_numpy(there.labels),
        there.attributes[attack.property],
    )
    model = FlatModel(copy.deepcopy(knowledge.module))
    model.load(start)
    layer = Layer.first(model.module)
    assert layer is not None, "check() has seen to it"
    inputs = layer.inputs(model.module, images)
    # There are more inputs than images: a light touch, which only says which way the property lies.
    direction = make_pipeline(
        StandardScaler(), LogisticRegression(C=1e-4, class_weight="balanced", max_iter=1000)
    ).fit(inputs, has)
    changes = []
    for number in range(2 * attack.updates):
        positives = attack.positives(size) if number < attack.updates else 0
        drawn = [
            rng.choice(np.flatnonzero(has), positives, replace=False),
            rng.choice(np.flatnonzero(~has), size - positives, replace=False),
        ]
        mine = torch.from_numpy(np.concatenate(drawn))
        made = local_update(
            model, start, images=images[mine], labels=labels[mine], settings=knowledge.work, rng=rng
        )
        changes.append(layer.changes(made[None])[0])
        watch(number + 1, 2 * attack.updates)
    return _Lesson(layer, direction, inputs.mean(axis=0), np.array(changes))


def _sums(
    made: NDArray[np.float32], clients: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Mean changes of so many clients, of whom one has the property or nobody has it, and which."""
    answers = np.arange(len(made)) < len(made) // 2
    if clients == 1:
        return made, answers
    lacking = made[~answers]
    # With replacement: a pool of fifty has to do for sums of a hundred.
    chosen = rng.integers(len(lacking), size=(len(made), clients - 1))
    sums = np.stack([target + lacking[row].sum(axis=0) for target, row in zip(made, chosen, strict=True)])
    return np.asarray(sums / clients, dtype=np.float32), answers

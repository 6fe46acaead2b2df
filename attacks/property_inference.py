"""Whether a client's images have a property that has nothing to do with the task (Melis et al. 2018).

The attacker holds auxiliary images, some with the property, and trains on them as clients do, starting from
the model that it sends them: with and without the property among the images. From such labelled updates,
or from sums of them, a classifier learns the difference. What it looks at is what the layers of the model
saw on average, because updates themselves speak of the images' classes before anything else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from attacks.evidence import Evidence
from attacks.inference import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.knowledge import Knowledge
from fedsim.errors import UserError


class PropertyInference(InferenceAttack):
    """Tells clients with a property from those without, by training on auxiliary images.

    `updates` of each kind are made. The features of an update are the mean inputs of all layers that have
    a bias, projected at random to `features` numbers if they are more; a logistic regression tells them
    apart.
    """

    kind: ClassVar[Kind] = "property_inference"
    name: Literal["property_inference"] = "property_inference"
    property: str
    """An attribute of the images."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The part of a client's images that has the property if the client has it."""
    updates: PositiveInt = 100
    features: PositiveInt = 1024

    def positives(self, size: int) -> int:
        """How many of `size` images have the property if the client has it."""
        return max(1, round(self.share * size))

    def check(self, knowledge: Knowledge) -> None:
        """The auxiliary images have to be enough for a client with the property, and for one without."""
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
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.random_projection import GaussianRandomProjection

        start = evidence.starts.mean(axis=0, dtype=np.float64).astype(np.float32)
        seed = int(rng.integers(2**63))
        key = (self, start.tobytes(), seed)
        if key not in knowledge.notes:
            # Updates are dear, and sums of all sizes can be learned from the same ones.
            knowledge.notes[key] = _train(self, start, knowledge, np.random.default_rng(seed), watch)
        updates, answers = _sums(knowledge.notes[key], evidence.clients, rng)
        examples = typical_inputs(updates, knowledge)
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        if examples.shape[1] > self.features:
            projection = GaussianRandomProjection(self.features, random_state=int(rng.integers(2**31)))
            classifier.steps.insert(1, ("projection", projection))
        classifier.fit(examples, answers)
        probability = classifier.predict_proba(typical_inputs(evidence.updates, knowledge))[:, 1]
        return Guesses(probability.astype(np.float32), len(knowledge.notes[key]))


def typical_inputs(updates: NDArray[np.float32], knowledge: Knowledge) -> NDArray[np.float64]:
    """(n, features) what the layers of the model saw on average while each of the updates was made.

    A layer's weights change by its errors times its inputs, and its bias by its errors alone. Errors depend
    on the images' classes, with either sign; the quotient of the two, weighted over the outputs by the size
    of their errors, is the mean input and hardly does.
    """
    return np.stack([np.concatenate(list(_inputs_of(update, knowledge))) for update in updates])


def _inputs_of(update: NDArray[np.float32], knowledge: Knowledge) -> Iterator[NDArray[np.float64]]:
    layers = knowledge.layers(update)
    for weight, bias in pairwise(layers):
        if weight.ndim > 1 and bias.shape == weight.shape[:1]:
            errors = bias.astype(np.float64)
            yield errors @ weight.reshape(len(bias), -1) / max(float(errors @ errors), 1e-30)


def _train(
    attack: PropertyInference,
    start: NDArray[np.float32],
    knowledge: Knowledge,
    rng: np.random.Generator,
    watch: Watch,
) -> NDArray[np.float32]:
    """(2 × updates, dim) what clients would send that own auxiliary images: first those with the property."""
    import torch

    from fedsim.training import FlatModel, as_input, local_update

    there, size = knowledge.auxiliary, knowledge.work.dataset_size
    inputs, labels = as_input(there.images), torch.from_numpy(there.labels)
    having, lacking = (np.flatnonzero(there.attributes[attack.property] == has) for has in (True, False))
    model = FlatModel(copy.deepcopy(knowledge.module))
    made = np.empty((2 * attack.updates, model.dim), dtype=np.float32)
    for number in range(len(made)):
        positives = attack.positives(size) if number < attack.updates else 0
        drawn = [
            rng.choice(having, positives, replace=False),
            rng.choice(lacking, size - positives, replace=False),
        ]
        mine = torch.from_numpy(np.concatenate(drawn))
        made[number] = local_update(
            model, start, images=inputs[mine], labels=labels[mine], settings=knowledge.work, rng=rng
        )
        watch(number + 1, len(made))
    return made


def _sums(
    made: NDArray[np.float32], clients: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Mean updates of so many clients, of whom one has the property or nobody has it, and which."""
    answers = np.arange(len(made)) < len(made) // 2
    if clients == 1:
        return made, answers
    lacking = made[~answers]
    # With replacement: a pool of a hundred has to do for sums of a hundred.
    chosen = rng.integers(len(lacking), size=(len(made), clients - 1))
    sums = np.stack([target + lacking[row].sum(axis=0) for target, row in zip(made, chosen, strict=True)])
    return np.asarray(sums / clients, dtype=np.float32), answers

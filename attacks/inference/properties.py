"""Whether a client's examples have a property that has nothing to do with the task (Melis et al. 2018).

The attacker holds auxiliary examples, some with the property. They show it how the property looks to a layer
of the model that it sends: a direction among the layer's inputs. It also trains on them as clients do, with
and without the property among the examples. How far such labelled updates, or sums of them, go in that
direction shows how far is far enough.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from fedsim.core.errors import UserError

if TYPE_CHECKING:
    from attacks.inference.mean_inputs import Layer


_PARTS = 4
"""Of the auxiliary examples: each makes updates, and the other three say which way the property lies."""

_STILL = 0.01
"""Inputs whose variance is below this part of the mean one are not looked at. What auxiliary examples hardly
move would be blown up: one client whose example does move it would outshout the property in every update that
has a trace of this client in it."""


class PropertyInference(InferenceAttack):
    """Tells clients with a property from those without, by what the model sees of auxiliary examples.

    Logistic regressions on the inputs of the first fully connected layer learn the property from single
    examples. An update's score is theirs at the mean of the inputs that the update tells; about `updates` of
    each kind, made from auxiliary examples, turn scores into probabilities.
    """

    kind: ClassVar[Kind] = "property_inference"
    name: Literal["property_inference"] = "property_inference"
    property: str
    """An attribute of the examples."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The part of a client's examples that has the property if the client has it."""
    updates: PositiveInt = 50
    damping: PositiveFloat = 1e-5
    """Squared size, relative to the largest, below which a direction of an update is taken for noise."""

    def positives(self, size: int) -> int:
        """How many of `size` examples have the property if the client has it."""
        return max(1, round(self.share * size))

    def check(self, knowledge: Knowledge) -> None:
        """A layer to look at, and in every part of the examples a client's with the property, or without."""
        from attacks.inference.mean_inputs import Layer

        super().check(knowledge)
        if Layer.first(knowledge.module) is None:
            raise UserError(
                f"attack.inference: {self.name} needs a model with a fully connected layer that has a bias; "
                f"model {knowledge.model.name} has none"
            )
        there, size = knowledge.auxiliary, knowledge.work.dataset_size
        if not len(there.targets):
            raise UserError(
                f"attack.inference: {self.name} needs auxiliary examples: set attack.auxiliary_images"
            )
        if self.property not in there.attributes:
            known = ", ".join(there.attributes) or "none: these data have no attributes"
            raise UserError(
                f"attack.inference: {self.name}: property is {self.property!r}: expected one of {known}"
            )
        having, wanted = int(there.attributes[self.property].sum()), _PARTS * self.positives(size)
        if having < wanted or len(there.targets) - having < _PARTS * size:
            raise UserError(
                f"attack.inference: {self.name} needs {wanted} auxiliary examples with {self.property!r} and "
                f"{_PARTS * size} without; of the {len(there.targets)} granted, {having} have it: raise "
                f"attack.auxiliary_images, or choose another property"
            )

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n,) the probability that one of the clients behind each row has the property."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        start = evidence.starts.mean(axis=0, dtype=np.float64).astype(np.float32)
        seed = int(rng.integers(2**63))
        key = (self, start.tobytes(), seed)
        if key not in knowledge.notes:
            # Updates are dear, and sums of all sizes can be learned from the same ones.
            knowledge.notes[key] = _learn(self, start, knowledge, np.random.default_rng(seed), watch)
        lesson: _Lesson = knowledge.notes[key]
        examples, answers = [], []
        for part in lesson.parts:
            sums, has = _sums(part.changes, evidence.clients, rng)
            examples.append(part.direction.decision_function(lesson.seen_behind(sums, self.damping)))
            answers.append(has)
        # Directions are short, and so are scores: on their own scale the penalty would make a coin of them.
        far_enough = make_pipeline(StandardScaler(), LogisticRegression()).fit(
            np.concatenate(examples)[:, None], np.concatenate(answers)
        )
        seen = lesson.seen_behind(lesson.layer.changes(evidence.updates), self.damping)
        scores = np.mean([part.direction.decision_function(seen) for part in lesson.parts], axis=0)
        probability = far_enough.predict_proba(scores[:, None])[:, 1]
        return Guesses(probability.astype(np.float32), sum(len(part.changes) for part in lesson.parts))


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of the auxiliary examples: the updates that they make, and a direction that the others teach.

    `direction` is a classifier of inputs to the layer that has not seen the examples of this part, `changes`
    (2 × updates, neurons, inputs + 1) what training does to the layer: first with the property, then without.
    """

    direction: Any
    changes: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What auxiliary examples teach about one model; `typical` (inputs,) is the mean input to the `layer`."""

    layer: Layer
    typical: NDArray[np.float64]
    parts: list[_Part]

    def seen_behind(self, changes: NDArray[np.float32], damping: float) -> NDArray[np.float64]:
        """(n, inputs) the mean inputs behind changes of the layer."""
        from attacks.inference.mean_inputs import mean_inputs

        return mean_inputs(changes, self.typical, damping)


def _learn(
    attack: PropertyInference,
    start: NDArray[np.float32],
    knowledge: Knowledge,
    rng: np.random.Generator,
    watch: Watch,
) -> _Lesson:
    """Every part of the examples makes updates, and is judged by what the other parts teach.

    A direction fits the examples that it was learned from better than anybody else's: judged on these,
    updates with and without the property would look further apart than clients' are.
    """
    import torch
    from sklearn.feature_selection import VarianceThreshold
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from attacks.inference.mean_inputs import Layer
    from fedsim.training.local_training import FlatModel, local_update

    there, task, size = knowledge.auxiliary, knowledge.task, knowledge.work.dataset_size
    examples, targets = task.as_inputs(there.inputs), task.as_targets(there.targets)
    has = there.attributes[attack.property]
    model = FlatModel(copy.deepcopy(knowledge.module))
    model.load(start)
    layer = Layer.first(model.module)
    assert layer is not None, "check() has seen to it"
    inputs = layer.inputs(model.module, examples)
    each = -(-attack.updates // _PARTS)
    parts: list[_Part] = []
    split = StratifiedKFold(_PARTS, shuffle=True, random_state=int(rng.integers(2**31)))
    for others, own in split.split(inputs, has):
        # There are more inputs than examples: a light touch, which only says which way the property lies.
        direction = make_pipeline(
            VarianceThreshold(_STILL * inputs[others].var(axis=0).mean()),
            StandardScaler(),
            LogisticRegression(C=1e-4, class_weight="balanced", max_iter=1000),
        ).fit(inputs[others], has[others])
        changes = []
        for number in range(2 * each):
            positives = attack.positives(size) if number < each else 0
            drawn = [
                rng.choice(own[has[own]], positives, replace=False),
                rng.choice(own[~has[own]], size - positives, replace=False),
            ]
            mine = torch.from_numpy(np.concatenate(drawn))
            made = local_update(
                model,
                start,
                inputs=examples[mine],
                targets=targets[mine],
                loss=task.loss,
                settings=knowledge.work,
                rng=rng,
            )
            changes.append(layer.changes(made[None])[0])
            watch(len(parts) * 2 * each + number + 1, _PARTS * 2 * each)
        parts.append(_Part(direction, np.array(changes)))
    return _Lesson(layer, inputs.mean(axis=0), parts)


def _sums(
    made: NDArray[np.float32], clients: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Mean changes of so many clients, of whom one has the property or nobody has it, and which."""
    answers = np.arange(len(made)) < len(made) // 2
    if clients == 1:
        return made, answers
    lacking = made[~answers]
    # With replacement: a dozen has to do for sums of a hundred.
    chosen = rng.integers(len(lacking), size=(len(made), clients - 1))
    sums = np.stack([target + lacking[row].sum(axis=0) for target, row in zip(made, chosen, strict=True)])
    return np.asarray(sums / clients, dtype=np.float32), answers

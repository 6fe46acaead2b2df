"""Whether a client's examples have a property that has nothing to do with the task (Melis et al. 2018).

The attacker has auxiliary examples, some of them with the property. Shadow training on them shows how the
property looks to a layer of the model, as a direction among the layer's inputs, and how far updates with the
property, or sums of them, move in that direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from attacks.inference.attack import Guesses, InferenceAttack, Kind, Watch, unwatched
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Knowledge
from attacks.inference.needs import LayerNeed
from fedsim.core.errors import UserError

if TYPE_CHECKING:
    from attacks.inference.shadow_training import Shadows


class PropertyInference(InferenceAttack):
    """Tells clients with a property from clients without, with a model of auxiliary examples.

    Logistic regressions on the inputs of the first fully connected layer learn the property from single
    examples. The score of an update is their mean at the mean input that the update reveals. About `updates`
    shadow updates of each kind, made from auxiliary examples, turn scores into probabilities.
    """

    kind: ClassVar[Kind] = "property_inference"
    needs_layer: ClassVar[LayerNeed | None] = LayerNeed.ANY
    needs_auxiliary: ClassVar[bool] = True

    name: Literal["property_inference"] = "property_inference"
    property: str
    """An attribute of the examples."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a client's examples that has the property, if the client has it."""
    updates: PositiveInt = 50
    damping: PositiveFloat = 1e-5
    """Squared size, relative to the largest, below which a direction of an update counts as noise."""

    def positives(self, size: int) -> int:
        """The number of examples with the property among `size` examples of a client that has it."""
        return max(1, round(self.share * size))

    def check(self, knowledge: Knowledge) -> None:
        """Also, every fold of the auxiliary examples must have enough with and without the property."""
        from attacks.inference.shadow_training import FOLDS

        super().check(knowledge)
        granted, size = knowledge.auxiliary, knowledge.work.dataset_size
        if self.property not in granted.attributes:
            known = ", ".join(granted.attributes) or "none: these data have no attributes"
            raise UserError(
                f"attack.inference: {self.name}: property is {self.property!r}: expected one of {known}"
            )
        having, wanted = int(granted.attributes[self.property].sum()), FOLDS * self.positives(size)
        if having < wanted or len(granted.targets) - having < FOLDS * size:
            raise self.unmet(
                f"{wanted} auxiliary examples with {self.property!r} and {FOLDS * size} without; of the "
                f"{len(granted.targets)} granted, {having} have it: raise attack.auxiliary_images, or choose "
                f"another property"
            )

    def infer(
        self, evidence: Evidence, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch = unwatched
    ) -> Guesses:
        """(n,) the probability that one of the clients behind each row has the property."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        shadows = self._shadows(evidence, knowledge, rng, watch)
        scores, answers = [], []
        for fold in shadows.folds:
            changes, has = fold.cohort_means(evidence.clients, rng)
            inputs = shadows.mean_inputs(changes, self.damping)
            scores.append(fold.classifier.decision_function(inputs))
            answers.append(has)
        # Scores are small numbers: without scaling, the penalty would push all probabilities to one half.
        calibration = make_pipeline(StandardScaler(), LogisticRegression()).fit(
            np.concatenate(scores)[:, None], np.concatenate(answers)
        )
        inputs = shadows.mean_inputs(shadows.layer.changes(evidence.updates), self.damping)
        score = np.mean([fold.classifier.decision_function(inputs) for fold in shadows.folds], axis=0)
        probability = calibration.predict_proba(score[:, None])[:, 1]
        return Guesses(probability.astype(np.float32), sum(len(fold.changes) for fold in shadows.folds))

    def _shadows(
        self, evidence: Evidence, knowledge: Knowledge, rng: np.random.Generator, watch: Watch
    ) -> Shadows:
        """Shadow updates for the evidence's mean model, which evidence of all cohort sizes shares."""
        from attacks.inference.shadow_training import train_shadows

        start = evidence.starts.mean(axis=0, dtype=np.float64).astype(np.float32)
        seed = int(rng.integers(2**63))
        key = (self, start.tobytes(), seed)
        if key not in knowledge.notes:
            knowledge.notes[key] = train_shadows(
                knowledge.auxiliary.attributes[self.property],
                start,
                knowledge,
                positives=self.positives(knowledge.work.dataset_size),
                updates=self.updates,
                rng=np.random.default_rng(seed),
                watch=watch,
            )
        shadows: Shadows = knowledge.notes[key]
        return shadows

"""The inference attacks, from updates to private data, that a scenario can choose from."""

from typing import Annotated

from pydantic import Field

from attacks.inference.attack import InferenceAttack
from attacks.inference.inversion.analytic import Analytic
from attacks.inference.inversion.dlg import Dlg
from attacks.inference.inversion.geiping import Geiping
from attacks.inference.labels import LabelInference
from attacks.inference.properties import PropertyInference
from attacks.inference.sentences import Sentences
from attacks.inference.words import Words
from fedsim.core.plugins import Extensible

Inference = Annotated[
    Dlg | Geiping | Analytic | LabelInference | PropertyInference | Words | Sentences,
    Field(discriminator="name"),
    Extensible("inference", InferenceAttack),
]

__all__ = [
    "Analytic",
    "Dlg",
    "Geiping",
    "Inference",
    "InferenceAttack",
    "LabelInference",
    "PropertyInference",
    "Sentences",
    "Words",
]

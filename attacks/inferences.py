"""The attacks from updates to people that a scenario can choose from."""

from typing import Annotated

from pydantic import Field

from attacks.inversion.analytic import Analytic
from attacks.inversion.dlg import Dlg
from attacks.inversion.geiping import Geiping
from attacks.label_inference import LabelInference
from attacks.property_inference import PropertyInference
from fedsim.settings import BY_NAME

Inference = Annotated[
    Dlg | Geiping | Analytic | LabelInference | PropertyInference, Field(discriminator="name"), BY_NAME
]

__all__ = ["Analytic", "Dlg", "Geiping", "Inference", "LabelInference", "PropertyInference"]

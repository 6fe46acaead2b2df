"""The attacks from updates to people that a scenario can choose from."""

from typing import Annotated

from pydantic import Field

from attacks.inversion.analytic import Analytic
from attacks.label_inference import LabelInference
from fedsim.settings import BY_NAME

Inference = Annotated[LabelInference | Analytic, Field(discriminator="name"), BY_NAME]

__all__ = ["Analytic", "Inference", "LabelInference"]

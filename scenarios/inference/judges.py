"""Who judges which kind of attack."""

from collections.abc import Mapping

from attacks.inference import Kind
from scenarios.inference.images import ImageJudge
from scenarios.inference.judge import Judge
from scenarios.inference.labels import LabelJudge

JUDGES: Mapping[Kind, Judge] = {"inversion": ImageJudge(), "label_inference": LabelJudge()}

"""Who judges which kind of attack."""

from collections.abc import Mapping

from attacks.inference.attack import Kind
from scenarios.run.inference.images import ImageJudge
from scenarios.run.inference.judge import Judge
from scenarios.run.inference.labels import LabelJudge
from scenarios.run.inference.properties import PropertyJudge

JUDGES: Mapping[Kind, Judge] = {
    "inversion": ImageJudge(),
    "label_inference": LabelJudge(),
    "property_inference": PropertyJudge(),
}

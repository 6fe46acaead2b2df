"""Who judges which kind of attack."""

from collections.abc import Mapping

from attacks.inference import Kind
from scenarios.inference.images import ImageJudge
from scenarios.inference.judge import Judge
from scenarios.inference.labels import LabelJudge
from scenarios.inference.properties import PropertyJudge

JUDGES: Mapping[Kind, Judge] = {
    "inversion": ImageJudge(),
    "label_inference": LabelJudge(),
    "property_inference": PropertyJudge(),
}

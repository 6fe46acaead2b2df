"""The judge of each kind of attack."""

from collections.abc import Mapping

from attacks.inference.attack import Kind
from scenarios.run.inference.images import InversionJudge
from scenarios.run.inference.judge import Judge
from scenarios.run.inference.labels import LabelJudge
from scenarios.run.inference.properties import PropertyJudge
from scenarios.run.inference.sentences import SentenceJudge
from scenarios.run.inference.words import WordJudge

_ALL: tuple[Judge, ...] = (InversionJudge(), LabelJudge(), PropertyJudge(), WordJudge(), SentenceJudge())

JUDGES: Mapping[Kind, Judge] = {judge.kind: judge for judge in _ALL}
"""Kind → its judge; a test holds that every kind has one."""

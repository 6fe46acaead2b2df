"""The inference attacks of a scenario by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attacks.inference.attack import InferenceAttack
from fedsim.core.plugins import SEPARATOR


def entries(attacks: Iterable[InferenceAttack]) -> Iterable[tuple[str, InferenceAttack]]:
    """Every attack with its key in files and results: its name, numbered from the second of a name on."""
    seen: Counter[str] = Counter()
    for attack in attacks:
        # Of a plug-in `module:Class` the class alone: keys are parts of file names and of dotted names.
        name = (attack.key or attack.name).rpartition(SEPARATOR)[2]
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}", attack

"""The inference attacks of a scenario by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attacks.inference.attack import InferenceAttack


def entries(attacks: Iterable[InferenceAttack]) -> Iterable[tuple[str, InferenceAttack]]:
    """Every attack with its key in files and results: its name, numbered from the second of a name on."""
    seen: Counter[str] = Counter()
    for attack in attacks:
        seen[attack.name] += 1
        yield attack.name if seen[attack.name] == 1 else f"{attack.name}_{seen[attack.name]}", attack

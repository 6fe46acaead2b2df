"""The verdict on a defence: whether the evidence is gone, or only our attack failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scenarios.evaluate.figures import ONES, ONES_CEILING, ONES_GUESS
from scenarios.evaluate.outcome import Figure, Outcome

NEAR_GUESS = 0.1
"""Share of the participations, beyond those that a guess finds, that counts as near the guess."""
COUNTS_TELL = 0.5
"""Share of the participations from which a guess by the counts alone is a leak."""


class Form(StrEnum):
    """The three forms of a verdict."""

    STOPPED = "stopped"
    """The ceiling itself is near the guess: nothing better is to be found."""
    HELD = "held against our attack"
    """The attack is near the guess, and the ceiling is not, or is unknown."""
    LEAKS = "leaks"
    """The attack finds more than a guess, or the counts alone tell who took part."""


@dataclass(frozen=True)
class Verdict:
    """A form, and the figures that it rests on: shares of the participations found, over the seeds."""

    form: Form
    guess: Figure
    attack: Figure
    ceiling: Figure | None
    """None if at least one run has no ceiling."""

    @classmethod
    def of(cls, outcome: Outcome) -> Verdict | None:
        """The verdict on an outcome; None if its runs do not have the figures."""
        guess, attack, ceiling = (outcome.figures.get(key) for key in (ONES_GUESS, ONES, ONES_CEILING))
        if guess is None or attack is None:
            return None
        if guess.mean >= COUNTS_TELL or attack.mean > guess.mean + NEAR_GUESS:
            return cls(Form.LEAKS, guess, attack, ceiling)
        stopped = ceiling is not None and ceiling.mean <= guess.mean + NEAR_GUESS
        return cls(Form.STOPPED if stopped else Form.HELD, guess, attack, ceiling)

    @property
    def deciding(self) -> tuple[float, Figure]:
        """How far the figure that decides is from its threshold, and that figure."""
        if self.form is Form.LEAKS and self.guess.mean >= COUNTS_TELL:
            return self.guess.mean - COUNTS_TELL, self.guess
        if self.form is Form.LEAKS or self.ceiling is None:
            return abs(self.attack.mean - self.guess.mean - NEAR_GUESS), self.attack
        return abs(self.ceiling.mean - self.guess.mean - NEAR_GUESS), self.ceiling

"""The analytics section of a scenario: how counts are collected from devices and published."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from analytics.questions import Collection, EqualWindows, Off, Questions
from analytics.release import Drop, Release, Statement
from analytics.report import ParticipationReport
from fedsim.core.seeds import Stage, stream
from fedsim.core.settings import Settings

Rate = Annotated[float, Field(ge=0, le=1)]


class AnalyticsSettings(Settings):
    """The operator asks each device about every `window` rounds how often it took part.

    The answers pass through the policies of `release` in order, and are then published.
    """

    window: PositiveInt = 10
    collection: Collection = EqualWindows()
    late: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The chance that a device cannot be reached when it is asked; it is asked again after the next round,
    and its answer covers the rounds until then."""
    missing: Rate = 0.0
    """The chance that an answer is lost on the way: its window has no count."""
    release: Annotated[tuple[Release, ...], Field(strict=False)] = ()
    """The policies that change the counts before they are published."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        blurred = None
        for policy in self.release:
            if policy.wants_whole_counts and blurred is not None:
                # One participation may change a rounded count by more than one: ε would not hold.
                raise PydanticCustomError(
                    "order", "expected {a} before {b}", {"a": policy.name, "b": blurred.name}
                )
            blurred = blurred or (None if policy.keeps_whole_counts else policy)
        return self

    @property
    def publishes_counts(self) -> bool:
        """Whether these settings can publish any count."""
        dropped = any(isinstance(policy, Drop) and policy.fraction == 1 for policy in self.release)
        return not isinstance(self.collection, Off) and self.missing < 1 and not dropped

    def questions(self, *, rounds: int, clients: int, seed: int) -> Questions:
        """The plan that says when each device is asked."""
        return Questions.plan(
            self.collection,
            window=self.window,
            late=self.late,
            missing=self.missing,
            rounds=rounds,
            clients=clients,
            seed=seed,
        )

    def publish(
        self, answers: ParticipationReport, seed: int
    ) -> tuple[ParticipationReport, tuple[Statement, ...]]:
        """The published counts, and the public statement of each policy."""
        statements = []
        for position, policy in enumerate(self.release):
            statements.append(policy.statement(answers))
            answers = policy.apply(answers, stream(seed, Stage.RELEASE, position))
        return answers, tuple(statements)

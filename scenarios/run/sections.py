"""The sections of a result, but for the scores of inference attacks: what each figure means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

Statement = Mapping[str, Any]
"""What a defence or a release policy says about itself: its `name`, its settings, and what it promises."""

LISTED = Field(strict=False)
"""A tuple, which JSON writes as a list."""


class Section(BaseModel):
    """A part of a result: frozen, strict about types and keys, finite numbers only.

    Optional fields have a default and are left out of the file at that default. A field without a default
    that is None stands in the file as null: it was measured, and there is no value.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def to_json(self) -> dict[str, Any]:
        """The section as `result.json` holds it."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Simulation(Section):
    """The federation itself."""

    seconds: float
    """Seconds by the clock."""
    rounds: int
    void_rounds: int
    """Rounds that gave no sum."""
    data: str | None = None
    """Fingerprint of the data that the clients trained on."""
    cpu_seconds: float | None = None
    """CPU seconds, where a sweep measured them."""


class Training(Section):
    """The server's model after the last round."""

    test_accuracy: float
    """The task's metric on test examples: the accuracy, unless `metric` names another."""
    metric: str = "accuracy"
    test_perplexity: float | None = None
    """Of a model of text: among how many equally likely words it chooses, in effect. Lower is better."""
    unigram_perplexity: float | None = None
    """The perplexity of a model that knows only how frequent words are."""


class RoundsPerClient(Section):
    """How often clients took part."""

    least: int
    mean: float
    most: int


class AnonymitySet(Section):
    """Clients that took part in exactly the same rounds as a client, itself included.

    No number of sums can tell them apart. Over the clients that took part.
    """

    smallest: int
    mean: float


class Cohorts(Section):
    """Who took part how often, and among how many a client hides."""

    cohort_size: float
    """Mean number of updates in a sum."""
    rounds_per_client: RoundsPerClient
    fairness: float
    """Jain's index of the rounds per client: 1 if all are equal, 1/clients if one client has them all."""
    anonymity_set: AnonymitySet


class Messages(Section):
    """Messages to devices per round, by purpose; each is answered by one more."""

    training: float
    masking: float
    telemetry: float


class Analytics(Section):
    """The published counts, and what they are worth to the operator."""

    release: tuple[Statement, ...] = LISTED
    """What each release policy states, in the order in which they apply."""
    count_error: float | None
    """Mean absolute error of the published counts; None if there are none."""
    missing_fraction: float
    """Fraction of all (client, round) pairs that no count covers."""
    mean_window: float | None
    """Mean number of rounds that a count covers; None if there are no counts."""


class Trained(Section):
    """The sections that are fixed once the training is over."""

    simulation: Simulation
    training: Training
    defences: tuple[Statement, ...] = LISTED
    """What each defence states, in the order in which they apply."""
    cohorts: Cohorts
    messages: Messages

    def spent(self, cpu_seconds: float) -> Self:
        """The same with the CPU time of the simulation."""
        simulation = self.simulation.model_copy(update={"cpu_seconds": cpu_seconds})
        return self.model_copy(update={"simulation": simulation})

    def published(self, analytics: Analytics) -> Honest:
        """The same with the counts that were published."""
        return Honest.model_validate({**dict(self), "analytics": analytics})


class Honest(Trained):
    """The sections that no attack changes: the training, and the counts that were published."""

    analytics: Analytics


class Baselines(Section):
    """What no attack and a perfect attack would give."""

    counts_only_exact_fraction: float
    """Expected fraction of whole columns that the best guess from the counts alone gets right."""
    counts_only_ones_found: float | None = None
    """Expected fraction of the participations that a random column with the counts finds."""
    counts_only_ones_precision: float | None = None
    """Expected fraction of the participations in such a column that are right."""
    counts_only_bit_accuracy: float
    """Expected fraction of entries that such a guess gets right."""
    oracle_singled_out_fraction: float | None = None
    """Fraction of clients that a perfect attack can single out."""
    aggregate_update_cosine: float
    """Cosine of the mean aggregate: no attack."""
    oracle_update_cosine: float
    """Cosine of least squares with the true participation: a perfect attack."""


class PrivacyBound(Section):
    """A bound on every test that tells two equally likely worlds apart, whoever makes it."""

    defence: str
    """The defence that promises it."""
    hides: str
    """What the two worlds differ in."""
    rounds: int
    """In how many rounds they differ: one, or all rounds of the client with the most."""
    epsilon: float
    delta: float
    right_at_most: float
    """Largest probability that a test is right; 0.5 is a coin."""


class Ceiling(Section):
    """What the published sums and counts could give at best, by whatever attack.

    The best of three: a genie that is told all other participations and decides each one by likelihood, this
    attack, and the guess from the counts. None: it was not computed, and `basis` says why."""

    ones_found: float | None
    """Fraction of the participations that are found."""
    ones_precision: float | None
    """Fraction of the found participations that are right."""
    exact_fraction: float | None
    """Fraction of clients whose whole column is right."""
    singled_out_fraction: float | None
    """Fraction of clients with a right column that nobody else has."""
    unique_fraction: float | None = None
    """Without noise: fraction of columns that are the only ones to fit what was published.

    A client with n such columns counts 1/n. None if sums or counts have noise, or if nothing shows it."""
    basis: str
    """Where the figures come from."""
    privacy: tuple[PrivacyBound, ...] = Field(default=(), strict=False)
    """What the (ε, δ) of the defences bounds."""


class LikelyColumns(Section):
    """Whether the attack's confidence in its `likely` columns was deserved. Only scoring can tell."""

    columns: int
    """Clients with the outcome `likely`."""
    expected: float
    """How many of them are right by the attack's own confidence: its sum."""
    right: int
    """How many of them are right."""

    @property
    def overconfident(self) -> bool:
        """Whether fewer are right than the confidence allows: more than two standard deviations, and one."""
        chance = self.expected / self.columns if self.columns else 0.0
        deviation = math.sqrt(self.columns * chance * (1 - chance))
        return self.right < self.expected - max(2 * deviation, 1.0)

    def warning(self) -> str:
        """One sentence if the confidence is too high, else nothing."""
        if not self.overconfident:
            return ""
        return (
            f"the confidence is too high here: of {self.columns} likely columns {self.right} are right, "
            f"{self.expected:.0f} expected"
        )


class Disaggregation(Section):
    """How good the recovered participation and updates are."""

    ones_found: float | None = None
    """Fraction of all participations (ones of P) that were found; None if nobody took part."""
    ones_precision: float | None = None
    """Fraction of the participations in the recovered columns that are right; None if there are none."""
    ceiling: Ceiling | None = None
    """What the same evidence could give at best; None in results from before ceilings."""
    exact_fraction: float
    """Fraction of clients whose whole column is right."""
    exact_up_to_names: float
    """Fraction of true columns that were found, for whichever client."""
    singled_out_fraction: float
    """Fraction of clients that are resolved, with a column that is right and that nobody else has.

    Their own update is known, and not only the sum of a group's."""
    advantage: float
    """`exact_fraction` beyond what a guess from the counts gives."""
    pseudonymous: bool
    """No counts were published: columns have no names and were matched to clients by the truth."""
    bit_accuracy: float
    """Fraction of the entries of P that are right."""
    certified_fraction: float
    """Fraction of clients with the outcome `proved`."""
    update_cosine: float
    """Mean cosine between recovered and true update over the clients that took part.

    No recovered update counts as 0."""
    resolved_update_cosine: float | None = None
    """The same over the clients that have a recovered update; None if there are none."""
    estimated_update_cosine: float | None = None
    """The same over all clients that took part, with estimates from the expected participation.

    A column counts as it was recovered or, if it is unresolved, as the attack's best guess; without a guess
    the rates that the counts suggest take its place. None in results from before ceilings."""
    estimated_update_error: float | None = None
    """Root mean square error of these estimates, relative to the updates; 1 is no better than zero."""
    update_variance: float | None
    """Mean squared distance of an update from its client's mean, relative to the means' mean square."""
    outcomes: Mapping[str, int]
    """Clients by outcome."""
    unresolved: Mapping[str, int]
    """Unresolved clients by reason."""
    likely: LikelyColumns | None = None
    """Whether the confidence in `likely` columns was deserved; None in older results."""
    false_certificates: int
    """Columns that were called proved, and are wrong."""
    solver: str
    seconds: float
    """Seconds by the clock."""
    baselines: Baselines
    cpu_seconds: float | None = None
    client_cpu_seconds: float | None = None
    """CPU seconds per client."""


class InferenceCost(Section):
    """What all inference attacks together cost."""

    cpu_seconds: float

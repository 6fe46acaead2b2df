"""The scores of inference attacks: one class per kind of attack.

Every figure stands in three columns: the same attack on the sum of a round, on the recovered updates, and on
the true ones. A new kind of attack adds a class here and to `Score`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from scenarios.run.sections import Section

ByCohort = Mapping[str, float | None]
"""A figure for sums of cohorts of several sizes: size → value."""

_NO_COHORTS: Mapping[str, Any] = MappingProxyType({})


class Columns(Section):
    """One figure, by what the attack was given; None where a column has no clients."""

    disaggregated: float | None
    """For the recovered updates: the attack."""
    aggregate: float | None
    """For the sum of a round: no attack."""
    oracle: float | None
    """For the true updates: a perfect attack."""

    @property
    def baselines(self) -> dict[str, float | None]:
        """The values that need no evidence at all, by name."""
        return {name: value for name, value in self if name not in Columns.model_fields}


class BesideGrey(Columns):
    """A figure about images, beside the same for plain grey images."""

    grey: float | None


class BesidePrior(Columns):
    """A figure about label histograms, beside the same for everybody's histogram."""

    prior: float | None


class BesideChance(Columns):
    """A figure about a property, beside the same for a guess without evidence."""

    chance: float | None


class BesideFrequency(Columns):
    """A figure about words, beside the same for a guess from the frequency of words."""

    frequency: float | None


class InferenceScore(Section):
    """What every inference attack reports.

    A figure is None if nobody took part, because then there was nobody to attack. `…_by_cohort` holds the
    same figure for sums of cohorts of the sizes that the scenario asks for.
    """

    clients: int
    """Clients under attack."""
    resolved: int
    """Those of them that have a recovered update."""
    cohort_size: Mapping[str, int] = Field(default={})
    """Clients in the evidence, by column."""
    seconds: Mapping[str, float] = Field(default={})
    """Seconds by the clock, by column."""
    iterations: Mapping[str, int] = Field(default={})
    """Iterations of the search, by column."""

    def figures(self) -> Iterator[tuple[str, Columns, ByCohort]]:
        """Every figure that has values: its name, its columns, and its values by cohort size."""
        for name, value in self:
            if isinstance(value, Columns):
                yield name, value, getattr(self, f"{name}_by_cohort", _NO_COHORTS)


class InversionScore(InferenceScore):
    """How near guessed images are to a client's own, mean over clients."""

    kind: Literal["inversion"]
    psnr_db: BesideGrey | None = None
    """Mean over a client's images."""
    psnr_db_by_cohort: ByCohort = Field(default={})
    psnr_db_best: BesideGrey | None = None
    """A client's best image."""
    psnr_db_best_by_cohort: ByCohort = Field(default={})
    psnr_db_worst: BesideGrey | None = None
    """A client's worst image."""
    psnr_db_worst_by_cohort: ByCohort = Field(default={})
    ssim: BesideGrey | None = None
    """Mean over a client's images."""
    ssim_by_cohort: ByCohort = Field(default={})

    def in_words(self) -> str:
        """A sentence about images from recovered updates; empty unless they are nearer than the sum's."""
        psnr = self.psnr_db
        if psnr is None or psnr.disaggregated is None or psnr.aggregate is None:
            return ""
        nearer = psnr.disaggregated - psnr.aggregate
        if nearer <= 0:
            return ""
        return (
            f"Turned into images, these contributions come {nearer:.1f} dB nearer to the clients' own "
            "pictures than the sum does."
        )


class LabelScore(InferenceScore):
    """How near guessed label histograms are to the true ones, mean over clients."""

    kind: Literal["label_inference"]
    tv: BesidePrior | None = None
    """Total variation distance: 0 for the same histogram, 1 for one without overlap."""
    tv_by_cohort: ByCohort = Field(default={})


class PropertyScore(InferenceScore):
    """How well a property tells clients apart that have it from those that do not."""

    kind: Literal["property_inference"]
    auc: BesideChance | None = None
    """Chance that a client with the property gets the higher guess."""
    auc_by_cohort: ByCohort = Field(default={})
    auc_low: Columns | None = None
    """Lower end of the 95 % interval of `auc`."""
    auc_low_by_cohort: ByCohort = Field(default={})
    auc_high: Columns | None = None
    """Upper end of the 95 % interval of `auc`."""
    auc_high_by_cohort: ByCohort = Field(default={})
    right: BesideChance | None = None
    """Fraction of clients whose property is guessed right."""
    right_by_cohort: ByCohort = Field(default={})


class WordScore(InferenceScore):
    """Which words of few authors are attributed to a client, and how many of them rightly.

    Means over the clients that have a column.
    """

    kind: Literal["word_attribution"]
    most_authors: int = 10
    """Words with more authors are left out."""
    precision: BesideFrequency | None = None
    """Share of the attributed words that the client typed."""
    precision_by_cohort: ByCohort = Field(default={})
    recall: BesideFrequency | None = None
    """Share of the client's words that are attributed to it."""
    recall_by_cohort: ByCohort = Field(default={})
    f1: BesideFrequency | None = None
    """Harmonic mean of both, over all clients under attack; one without a column counts 0."""
    f1_by_cohort: ByCohort = Field(default={})
    precision_by_authors: Mapping[str, float | None] = Field(default={})
    """From recovered updates, by the number of authors of a word; over all clients together."""
    recall_by_authors: Mapping[str, float | None] = Field(default={})
    sure: int = 0
    """Pairs of a client and a word that disaggregation is sure about."""
    sure_right: int = 0


class SentenceScore(InferenceScore):
    """How near guessed texts are to a client's own, mean over clients.

    Each piece of a client's text is matched with a guessed piece; what is left over on either side counts 0.
    """

    kind: Literal["sentences"]
    rouge_1: BesideFrequency | None = None
    """F-measure of words, mean over the pieces."""
    rouge_1_by_cohort: ByCohort = Field(default={})
    rouge_2: BesideFrequency | None = None
    """F-measure of pairs of neighbouring words."""
    rouge_2_by_cohort: ByCohort = Field(default={})
    rouge_l: BesideFrequency | None = None
    """F-measure of the longest common subsequence."""
    rouge_l_by_cohort: ByCohort = Field(default={})
    bag: BesideFrequency | None = None
    """F-measure of all words of a client with their multiplicities, in any order."""
    bag_by_cohort: ByCohort = Field(default={})
    exact: Columns | None = None
    """Share of a client's pieces that are guessed word for word."""
    exact_by_cohort: ByCohort = Field(default={})
    tokens: float | None = None
    """Tokens of a client, mean over clients."""


Score = Annotated[
    InversionScore | LabelScore | PropertyScore | WordScore | SentenceScore, Field(discriminator="kind")
]
"""The score of an inference attack of any kind."""

SCORES: Mapping[str, type[Score]] = {
    get_args(member.model_fields["kind"].annotation)[0]: member for member in get_args(get_args(Score)[0])
}
"""The class of a score, by the kind of its attack."""

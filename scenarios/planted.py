"""Planted problems: sums of updates that were drawn at random, so that the answer is known.

The paper's synthetic tables, the forecast and most tests of the attack use them. Disaggregation depends on
the geometry of sums and counts only, and random updates have the geometry of real ones.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from analytics.report import ParticipationReport, windowed_counts
from attacks.disaggregation import DisaggregationProblem, Recovery, disaggregate
from attacks.disaggregation.solvers import Auto, Solver, unmet_need
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.result import SCHEMA_VERSION, PlantedResult
from scenarios.run.scoring import score_disaggregation

SPARE_ENTRIES = 32
"""Entries of an update beyond two per client. Without noise more entries change nothing. With hardly more
entries than clients random updates are nearly dependent, and rounding to single precision blurs the sums."""


class Planted(Settings):
    """What to plant. Entries of updates are standard normal; a client takes part with probability `rate`.

    A fraction `known` of the counts per `window` is published, with normal noise of `counts_sd`. Each
    participant adds normal noise of `noise_sd` to each of the `dim` entries of a sum (default: two per client
    and 32). Problems that differ only in `rounds` start with the same rounds.
    """

    seed: NonNegativeInt = 0
    clients: PositiveInt
    rounds: PositiveInt
    rate: float = Field(default=0.1, gt=0, le=1)
    window: PositiveInt = 10
    known: float = Field(default=1.0, ge=0, le=1)
    counts_sd: NonNegativeFloat = 0.0
    dim: PositiveInt | None = None
    noise_sd: NonNegativeFloat = 0.0
    solver: Solver = Auto()

    @model_validator(mode="after")
    def _solver_gets_what_it_needs(self) -> Self:
        need = unmet_need(self.solver, has_counts=self.known > 0)
        if need is not None:
            raise PydanticCustomError("contract", "solver: {need}", {"need": need})
        return self

    def run(self, progress: Progress = silent) -> PlantedResult:
        """Plant, attack and score."""
        truth, transcript, counts = self.plant()
        began = time.process_time()
        recovery = self.attack(transcript, counts, progress)
        cpu_seconds = time.process_time() - began
        figures = score_disaggregation(recovery, truth, transcript, counts, made_beside_truth=True)
        cost = {"cpu_seconds": cpu_seconds, "client_cpu_seconds": cpu_seconds / self.clients}
        return PlantedResult(
            schema_version=SCHEMA_VERSION,
            disaggregation=figures.model_copy(update=cost),
            counts=self._shares(truth),
        )

    def _shares(self, truth: Truth) -> dict[str, float]:
        """Distribution of the counts before any noise: value → share of all counts."""
        counts = windowed_counts(truth.participation, self.window).count
        values, number = np.unique(counts.astype(np.int64), return_counts=True)
        return {str(value): float(n / len(counts)) for value, n in zip(values, number, strict=True)}

    def solve(self) -> tuple[Truth, Recovery]:
        """Plant and attack: the truth, and what the attack recovered."""
        truth, transcript, counts = self.plant()
        return truth, self.attack(transcript, counts)

    def attack(
        self, transcript: Transcript, counts: ParticipationReport, progress: Progress = silent
    ) -> Recovery:
        """What the solver recovers from the sums and counts that were planted."""
        problem = DisaggregationProblem(
            transcript.aggregates, counts, cohort_sizes=transcript.cohort_sizes, num_clients=self.clients
        )
        return disaggregate(
            problem,
            self.solver,
            rng=self._streams()[4],
            progress=progress,
        )

    def plant(
        self, participation: NDArray[np.uint8] | None = None
    ) -> tuple[Truth, Transcript, ParticipationReport]:
        """The truth, the sums, and the published counts; `participation` (rounds, clients) may be given."""
        schedule, values, blur, telemetry, _ = self._streams()
        P = participation
        if P is None:
            P = (schedule.random((self.rounds, self.clients)) < self.rate).astype(np.uint8)
        clients = P.shape[1]
        dim = self.dim or 2 * clients + SPARE_ENTRIES
        G = values.standard_normal((clients, dim), dtype=np.float32)
        sizes = P.sum(axis=1, dtype=np.int64)
        A = P.astype(np.float32) @ G
        if self.noise_sd:
            spread = (self.noise_sd * np.sqrt(sizes)).astype(np.float32)
            A += spread[:, None] * blur.standard_normal(A.shape, dtype=np.float32)
        transcript = Transcript(A, sizes, sizes.astype(np.float64), ((dim,),))
        counts = blurred(windowed_counts(P, self.window), telemetry, known=self.known, sd=self.counts_sd)
        return Truth(P, G), transcript, counts

    def _streams(self) -> list[np.random.Generator]:
        """For participation, updates, their noise, the counts and the attack."""
        *world, attack = np.random.default_rng(self.seed).spawn(5)
        # A generator remembers the seed that it was spawned from; the attack's must not.
        return [*world, np.random.default_rng(int(attack.integers(2**63)))]


def blurred(
    counts: ParticipationReport, rng: np.random.Generator, *, known: float = 1.0, sd: float = 0.0
) -> ParticipationReport:
    """Exact counts with normal noise of `sd`, and only a fraction `known` of them."""
    hidden: NDArray[np.bool_] = rng.random(len(counts.count)) >= known
    noisy = counts.count + sd * rng.standard_normal(len(counts.count))
    return replace(counts, count=np.where(hidden, np.nan, noisy), noise_sd=sd)

"""A planted problem: sums whose parts are known because they were drawn, without any federation.

The paper's synthetic tables are made of such problems, and a forecast rests on them: updates with standard
normal entries are as good as real ones where only the geometry of sums and counts matters.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Self

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
from scenarios.run.scoring import score_disaggregation

SPARE_ENTRIES = 32
"""Entries of an update beyond two per client. Without noise more of them change nothing; with hardly more
than clients random updates are next to dependent, and rounding to single precision blurs the sums."""


class Planted(Settings):
    """What to plant. Every entry of an update is standard normal, every participation a coin with `rate`.

    A fraction `known` of the counts per `window` is published, with normal noise of `counts_sd`. Each
    participant adds noise of `noise_sd` to every one of the `dim` entries of a sum (two per client and 32
    if not given). Problems that differ in their `rounds` only begin alike.
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

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Plant, attack and score: the `disaggregation` part of a result, as a run has it.

        Also what it cost, in all and per client, and in `counts` the share of counts that have each value.
        """
        truth, transcript, counts = self.plant()
        began = time.process_time()
        recovery = self._attack(transcript, counts, progress)
        cpu_seconds = time.process_time() - began
        figures = score_disaggregation(recovery, truth, transcript, counts)
        cost = {"cpu_seconds": cpu_seconds, "client_cpu_seconds": cpu_seconds / self.clients}
        return {"disaggregation": {**figures, **cost}, "counts": self._shares(truth)}

    def _shares(self, truth: Truth) -> dict[str, float]:
        """How often a client takes part in a window, before any noise: value → share of all counts."""
        counts = windowed_counts(truth.participation, self.window).count
        values, number = np.unique(counts.astype(np.int64), return_counts=True)
        return {str(value): float(n / len(counts)) for value, n in zip(values, number, strict=True)}

    def solve(self) -> tuple[Truth, Recovery]:
        """Plant and attack: what is true, and what the attack made of it."""
        truth, transcript, counts = self.plant()
        return truth, self._attack(transcript, counts, silent)

    def _attack(self, transcript: Transcript, counts: ParticipationReport, progress: Progress) -> Recovery:
        problem = DisaggregationProblem(
            transcript.aggregates, counts, cohort_sizes=transcript.cohort_sizes, num_clients=self.clients
        )
        return disaggregate(problem, self.solver, rng=self._streams()[4], progress=progress)

    def plant(self) -> tuple[Truth, Transcript, ParticipationReport]:
        """Who took part and with what, the sums of it, and the counts that are published."""
        schedule, values, blur, telemetry, _ = self._streams()
        P = (schedule.random((self.rounds, self.clients)) < self.rate).astype(np.uint8)
        dim = self.dim or 2 * self.clients + SPARE_ENTRIES
        G = values.standard_normal((self.clients, dim), dtype=np.float32)
        sizes = P.sum(axis=1, dtype=np.int64)
        A = P.astype(np.float32) @ G
        if self.noise_sd:
            spread = (self.noise_sd * np.sqrt(sizes)).astype(np.float32)
            A += spread[:, None] * blur.standard_normal(A.shape, dtype=np.float32)
        transcript = Transcript(A, sizes, sizes.astype(np.float64), ((dim,),))
        return Truth(P, G), transcript, self._published(windowed_counts(P, self.window), telemetry)

    def _published(self, exact: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        hidden: NDArray[np.bool_] = rng.random(len(exact.count)) >= self.known
        noisy = exact.count + self.counts_sd * rng.standard_normal(len(exact.count))
        return replace(exact, count=np.where(hidden, np.nan, noisy), noise_sd=self.counts_sd)

    def _streams(self) -> list[np.random.Generator]:
        """For participation, updates, their noise, the counts and the attack."""
        return np.random.default_rng(self.seed).spawn(5)

"""Differentially private counts, by OpenDP's discrete Laplace mechanism."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from analytics.release.policy import Policy, Statement
from analytics.report import ParticipationReport


class Private(Policy):
    """Adds integer noise to every count, which hides a change of the count by one with a stated ε.

    One participation changes each count that covers its round by one. The noise comes from OpenDP, which uses
    the system's source of randomness: it is unpredictable, and differs when a run is repeated.
    """

    name: Literal["private"] = "private"
    epsilon: Annotated[float, Field(ge=1e-6)]
    """ε of one count; the protected unit is one participation."""
    keeps_whole_counts: ClassVar[bool] = True
    wants_whole_counts: ClassVar[bool] = True

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """The counts with noise; they may be negative, or larger than their window."""
        known = ~np.isnan(counts.count)
        count = counts.count.copy()
        if known.any():
            count[known] = self._mechanism()(count[known].astype(np.int64).tolist())
        # The sum of two errors is nearer to a normal one.
        return replace(
            counts, count=count, noise_sd=np.hypot(counts.sd, self.noise_sd), laplace=counts.sd == 0
        )

    @property
    def noise_sd(self) -> float:
        """Standard deviation of discrete Laplace noise, a difference of two geometric variables."""
        ratio = np.exp(-self.epsilon)
        return float(np.sqrt(2 * ratio) / (1 - ratio))

    def statement(self, counts: ParticipationReport) -> Statement:
        """Also ε of one participation over all counts, and ε of a whole device, by basic composition.

        A participation is in every count that covers its round. A device contributes to every round of every
        count: it could have taken part in all of them or in none.
        """
        mechanism = self._mechanism()
        known = ~np.isnan(counts.count)
        covering, all_rounds = 0, 0
        for client in np.unique(counts.client[known]):
            start, stop = (
                column[known & (counts.client == client)] for column in (counts.start, counts.stop)
            )
            steps = np.zeros(int(stop.max()) + 1, dtype=np.int64)
            np.add.at(steps, start, 1)
            np.add.at(steps, stop, -1)
            covering = max(covering, int(np.cumsum(steps).max()))
            all_rounds = max(all_rounds, int((stop - start).sum()))
        return {
            **super().statement(counts),
            "mechanism": "discrete Laplace (OpenDP)",
            "epsilon_per_count": mechanism.map(1),
            "epsilon_per_participation": mechanism.map(covering),
            "epsilon_per_device": mechanism.map(all_rounds),
        }

    def _mechanism(self) -> Any:
        """The mechanism: ε-private for vectors of counts at L1 distance 1."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return dp.m.make_laplace(*space, scale=1 / self.epsilon)

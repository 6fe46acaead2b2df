"""Coarser windows."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from analytics.release.policy import Policy
from analytics.report import ParticipationReport


class Coarsening(Policy):
    """Publishes one count for every `counts` of a device: their sum, or the last reading of a counter.

    A sum is missing if any of its counts is missing.
    """

    name: Literal["coarsening"] = "coarsening"
    counts: Annotated[int, Field(ge=2)]
    keeps_whole_counts: ClassVar[bool] = True

    def apply(self, counts: ParticipationReport, rng: np.random.Generator) -> ParticipationReport:
        """Fewer counts, over longer windows."""
        order = np.lexsort((counts.stop, counts.start, counts.client))
        client, start, stop = counts.client[order], counts.start[order], counts.stop[order]
        count, variance = counts.count[order], counts.sd[order] ** 2
        first = np.searchsorted(client, client)
        position = np.arange(len(client)) - first
        begins = np.flatnonzero(position % self.counts == 0)
        if not len(begins):
            return counts
        ends = np.append(begins[1:], len(client)) - 1
        reading = (
            start[begins] == start[ends]
        )  # of a cumulative counter: the last one has all the information
        return ParticipationReport(
            clients=counts.clients,
            client=client[begins],
            start=start[begins],
            stop=stop[ends],
            count=np.where(reading, count[ends], np.add.reduceat(count, begins)),
            noise_sd=np.sqrt(np.where(reading, variance[ends], np.add.reduceat(variance, begins))),
            laplace=counts.is_laplace[order][ends] & (reading | (begins == ends)),
        )

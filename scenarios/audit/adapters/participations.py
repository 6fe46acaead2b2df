"""Participations that a log names outright. What is known of P is fixed in the attack.

A known participation is an exact count over one round. So the attack needs nothing new: these counts stand
beside those of the telemetry.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from fedsim.core.errors import UserError


@dataclass(frozen=True)
class Participations:
    """`known` maps (round from 0, client) to whether the client took part. Others are unknown, not absent.

    `totals` maps a client to the number of rounds that it took part in. `source` is the file, for messages.
    """

    source: Path
    known: dict[tuple[int, str], bool]
    totals: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.known and not self.totals:
            raise UserError(f"{self.source}: it names no participation")

    def added_to(
        self,
        counts: ParticipationReport | None,
        rounds: int,
        sizes: dict[int, int] | None,
    ) -> ParticipationReport:
        """The counts, and an exact count for every known participation.

        `sizes` are cohort sizes by round. If as many clients are known to have taken part as the cohort has,
        nobody else took part in that round.
        """
        late = max((r for r, _ in self.known), default=-1)
        if late >= rounds:
            raise UserError(f"{self.source}: it names round {late}, and the log has rounds 0 to {rounds - 1}")
        rows: list[tuple[int | str, int, int, float | None]] = []
        sds: list[NDArray[np.float64]] = []
        laws: list[NDArray[np.bool_]] = []
        if counts is not None:
            rows = [
                (str(counts.clients[k]), int(start), int(stop), None if np.isnan(count) else float(count))
                for k, start, stop, count in zip(
                    counts.client, counts.start, counts.stop, counts.count, strict=True
                )
            ]
            sds.append(np.asarray(counts.sd))
            laws.append(np.asarray(counts.is_laplace))
        named = dict.fromkeys([*(str(row[0]) for row in rows), *(c for _, c in self.known), *self.totals])
        known = self.known | self._absences(list(named), sizes or {})
        more: list[tuple[int | str, int, int, float | None]] = [
            (client, r, r + 1, float(took_part)) for (r, client), took_part in known.items()
        ]
        more += [(client, 0, rounds, float(total)) for client, total in self.totals.items()]
        too_many = next((client for client, total in self.totals.items() if total > rounds), None)
        if too_many is not None:
            raise UserError(
                f"{self.source}: client {too_many} took part {self.totals[too_many]} times, and the log has "
                f"{rounds} rounds"
            )
        rows += more
        if all(name.isdecimal() and len(name) <= 18 and str(int(name)) == name for name in named):
            rows = [(int(client), start, stop, count) for client, start, stop, count in rows]
        sd = np.concatenate([*sds, np.zeros(len(more))])
        laplace = np.concatenate([*laws, np.zeros(len(more), dtype=np.bool_)])
        return ParticipationReport.from_rows(rows, noise_sd=sd if (sd > 0).any() else 0.0, laplace=laplace)

    def _absences(self, clients: list[str], sizes: dict[int, int]) -> dict[tuple[int, str], bool]:
        """Everybody else in rounds whose cohort is known completely; a `UserError` about larger cohorts."""
        present = Counter(r for (r, _), took_part in self.known.items() if took_part)
        for r, number in sorted(present.items()):
            if r in sizes and number > sizes[r]:
                raise UserError(
                    f"{self.source}: {number} clients took part in round {r}, whose cohort size is {sizes[r]}"
                )
        complete = [r for r, size in sizes.items() if present[r] == size]
        return {(r, client): False for r in complete for client in clients if not self.known.get((r, client))}

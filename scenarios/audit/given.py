"""The log that a user names on the command line: a tap's folder, sums, or models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedsim.core.buffers import BUFFERS
from fedsim.core.errors import UserError
from scenarios.audit.adapters.flare import read_flare
from scenarios.audit.adapters.participations import Participations
from scenarios.audit.adapters.superlink import read_superlink
from scenarios.audit.adapters.table import read_table
from scenarios.audit.checkpoints import Checkpoints
from scenarios.audit.kinds import Rows
from scenarios.audit.logs import Log
from scenarios.audit.servers import Server, server_named
from scenarios.audit.tap_folder import TapFolder


@dataclass(frozen=True)
class Given:
    """The options of `fedsim audit` that name a log and say what it is; a contradiction is a `UserError`."""

    folder: Path | None
    aggregates: Path | None
    models: Path | None
    server: str | None
    rows: Rows | None
    skip: tuple[str, ...]
    modulus: int | None
    counts: Path | None
    counts_sd: float
    cohort_sizes: Path | None
    layers: Path | None
    participation: Path | None = None
    superlink: Path | None = None
    run: int | None = None
    flare: Path | None = None

    def __post_init__(self) -> None:
        if sum(path is not None for path in (self.folder, self.aggregates, self.models)) != 1:
            raise UserError("expected one of DIR, --aggregates and --models")
        if self.counts is None and self.counts_sd:
            raise UserError(f"--counts-sd {self.counts_sd:g}: there are no counts; give --counts too")
        if not math.isfinite(self.counts_sd):
            raise UserError(f"--counts-sd {self.counts_sd:g}: expected a standard deviation, 0 or more")
        if sum(path is not None for path in (self.participation, self.superlink, self.flare)) > 1:
            raise UserError("expected one of --participation, --superlink and --flare")
        if self.run is not None and self.superlink is None:
            raise UserError(f"--run {self.run}: that belongs to --superlink: leave it out")
        for name in self._misplaced():
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option}: that does not belong to {self._source}: leave it out")

    @property
    def _source(self) -> str:
        return "DIR" if self.folder else "--aggregates" if self.aggregates else "--models"

    def _misplaced(self) -> list[str]:
        """Options that say something about another kind of log."""
        about_others = {
            "DIR": (
                *("counts", "cohort_sizes", "layers", "rows", "skip", "modulus"),
                *("participation", "superlink", "flare"),
            ),
            "--aggregates": ("server", "skip"),
            "--models": ("layers", "modulus"),
        }[self._source]
        return [name for name in about_others if getattr(self, name) not in (None, ())]

    @cached_property
    def tap(self) -> TapFolder | None:
        """The recording, if the log is one."""
        return None if self.folder is None else TapFolder.open(self.folder)

    @property
    def has_counts(self) -> bool:
        """Whether the log has counts."""
        if self.tap is not None:
            return self.tap.counts is not None
        return any(path is not None for path in (self.counts, self.participation, self.superlink, self.flare))

    @cached_property
    def participations(self) -> Participations | None:
        """What the log names outright of who took part when."""
        if self.participation is not None:
            return read_table(self.participation)
        if self.superlink is not None:
            return read_superlink(self.superlink, self.run)
        return None if self.flare is None else read_flare(self.flare)

    def read(self) -> Log:
        """The log as sums."""
        server: Server | None = None if self.server is None else server_named(self.server)
        if self.tap is not None:
            return self.tap.read(server)
        if self.aggregates is not None:
            return Log.read(
                self.aggregates,
                self.counts,
                counts_sd=self.counts_sd,
                cohort_sizes=self.cohort_sizes,
                layers=self.layers,
                rows=self.rows,
                modulus=self.modulus,
                participations=self.participations,
            )
        assert self.models is not None
        return Log.of_models(
            Checkpoints.read(self.models, self.skip or BUFFERS),
            self.models,
            server,
            self.counts,
            counts_sd=self.counts_sd,
            cohort_sizes=self.cohort_sizes,
            rows=self.rows,
            participations=self.participations,
        )

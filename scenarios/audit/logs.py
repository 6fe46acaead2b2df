"""The logs of a real system as an audit reads them: sums, counts, cohort sizes and the model's layers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from analytics.report import ParticipationReport, ReportError
from attacks.disaggregation import ProblemError
from fedsim.core.errors import UserError
from fedsim.core.files import check_regular, reading
from scenarios.audit.adapters.participations import Participations
from scenarios.audit.checkpoints import Checkpoints
from scenarios.audit.kinds import Rows
from scenarios.audit.rounds import RoundTable, counts_of_rows
from scenarios.audit.rows import centred, mean_updates, multiplied
from scenarios.audit.servers import FedAvg, Server
from scenarios.audit.sums import read_sums

OPTIONS = {"num_clients": "--clients", "solver": "--solver"}
"""Fields that come from no file: the option that sets each."""


@dataclass(frozen=True)
class Log:
    """The records of a server: `aggregates` (rounds, dim), sums, and the others if there are any.

    `files` maps each field to its file, for messages. `stated` tells what the rows were, if the user or a tap
    said so. `missing` is what the rows would need to become sums and nobody gave: the name of an option, or
    empty. `rounds` (rounds,) are the rounds of the rows, if they are known; some may have no row.
    `assumed` means that nobody said what made the rows: that they are sums, or which server made the models.
    `places` (rounds, any) are coordinates of the model with which each round began, if models were saved.
    """

    aggregates: NDArray[Any]
    counts: ParticipationReport | None
    cohort_sizes: NDArray[np.int64] | None
    layer_shapes: Sequence[tuple[int, ...]] | None
    files: dict[str, Path]
    stated: Rows | None = None
    missing: str = ""
    rounds: NDArray[np.int64] | None = None
    assumed: bool = False
    places: NDArray[np.float64] | None = None

    @property
    def gaps(self) -> int:
        """Rounds before the last one that have no row."""
        return 0 if self.rounds is None else int(self.rounds.max(initial=-1)) + 1 - len(self.rounds)

    @classmethod
    def read(
        cls,
        aggregates: Path,
        counts: Path | None = None,
        *,
        counts_sd: float = 0.0,
        cohort_sizes: Path | None = None,
        layers: Path | None = None,
        rows: Rows | None = None,
        modulus: int | None = None,
        participations: Participations | None = None,
        unfinished: bool = False,
    ) -> Log:
        """Read files. `aggregates` may be a run's transcript folder, which also holds sizes and layers.

        Rows of integers are known up to multiples of the `modulus`; 0 means that they are plain numbers. The
        last row of an `unfinished` log is left out if it lacks its line in the table of rounds.
        """
        if aggregates.is_dir():
            rows = rows or "sums"  # as runs write them
            cohort_sizes = cohort_sizes or _if_there(aggregates / "rounds.csv")
            layers = layers or _if_there(aggregates / "layers.json")
            aggregates /= "aggregates.npy"
        files = _files(aggregates=aggregates, counts=counts, cohort_sizes=cohort_sizes, layer_shapes=layers)
        sums = read_sums(aggregates)
        if sums.ndim != 2:
            raise UserError(f"{aggregates}: {sums.shape}, expected two dimensions: rounds × entries of a sum")
        if modulus:
            if sums.dtype.kind not in "iu":
                raise UserError(f"--modulus {modulus}: the rows of {aggregates} are no integers")
            sums = centred(sums, modulus)
        table = None if cohort_sizes is None else RoundTable.read(cohort_sizes)
        if unfinished and table is not None:
            sums = sums[: len(table.rounds)]
        log = cls._of(sums, table, counts, counts_sd, participations, stated=rows, files=files)
        integers = sums.dtype.kind in "iu" and modulus is None
        return replace(
            log,
            layer_shapes=None if layers is None else _read_layers(layers),
            missing="--modulus" if integers else log.missing,
            assumed=rows is None,
        )

    @classmethod
    def of_models(
        cls,
        models: Checkpoints,
        source: Path,
        server: Server | None = None,
        counts: Path | None = None,
        *,
        counts_sd: float = 0.0,
        cohort_sizes: Path | None = None,
        rows: Rows | None = None,
        participations: Participations | None = None,
    ) -> Log:
        """The sums behind the models of a server, which are means of the clients' models.

        Without a `server` they are taken for those of FedAvg. They are weighted means if the table of cohort
        sizes has weights, unless `rows` says otherwise.
        """
        files = _files(aggregates=source, counts=counts, cohort_sizes=cohort_sizes, layer_shapes=None)
        if rows == "sums":
            raise UserError("--rows sums: models are means of updates: expected means or weighted-means")
        steps = mean_updates(models.models, models.rounds, server or FedAvg())
        means, rounds = steps.means, steps.rounds
        if not len(means):
            raise UserError(f"{source}: no two models of consecutive rounds, from which a step could be told")
        if not means.any():
            raise UserError(f"{source}: no entry of the mean updates can be told from these models")
        table = None if cohort_sizes is None else RoundTable.read(cohort_sizes)
        if table is not None and not np.isin(rounds, table.rounds).all():
            first = int(rounds[~np.isin(rounds, table.rounds)][0])
            raise UserError(f"{cohort_sizes}: there is no line for round {first}")
        if rows is None:
            rows = "weighted-means" if table is not None and table.weights is not None else "means"
        table = None if table is None else table.of(np.isin(table.rounds, rounds))
        log = cls._of(
            means, table, counts, counts_sd, participations, stated=rows, files=files, rounds=rounds
        )
        return replace(log, layer_shapes=models.layer_shapes, assumed=server is None, places=steps.places)

    @classmethod
    def _of(
        cls,
        rows: NDArray[Any],
        table: RoundTable | None,
        counts: Path | None,
        counts_sd: float,
        participations: Participations | None,
        *,
        stated: Rows | None,
        files: dict[str, Path],
        rounds: NDArray[np.int64] | None = None,
    ) -> Log:
        """Rows of any kind as sums, and counts over these rows; `rounds` (n,) are the rounds of the rows."""
        if rounds is None and table is not None and len(table.rounds) == len(rows):
            rounds = table.rounds
        last = len(rows) if rounds is None else int(rounds.max(initial=-1)) + 1
        gaps = last - len(rows)
        report = None
        if counts is not None:
            limit = last if rows.ndim == 2 and len(rows) and not gaps else None
            report = _read_counts(counts, counts_sd, limit)
        if participations is not None:
            cohorts = (
                None
                if table is None
                else dict(zip(table.rounds.tolist(), table.cohort_sizes.tolist(), strict=True))
            )
            report = participations.added_to(report, last, cohorts)
            files = files | {"counts": participations.source}
        if report is not None and gaps and rounds is not None:
            report = counts_of_rows(report, rounds)
        missing = ""
        if stated in ("means", "weighted-means"):
            factors = None
            if table is not None:
                factors = table.cohort_sizes if stated == "means" else table.weights
            if factors is None:
                missing = "--cohort-sizes"
            elif len(factors) == len(rows):
                rows = multiplied(rows, factors)
        sizes = None if table is None else table.cohort_sizes
        return cls(rows, report, sizes, None, files, stated, missing, rounds)

    @contextmanager
    def mistakes(self) -> Iterator[None]:
        """Turn a contradiction in the log into a `UserError` that names the file."""
        try:
            yield
        except ProblemError as error:
            field, _, message = str(error).partition(": ")
            raise UserError(f"{self.files.get(field, OPTIONS.get(field, field))}: {message}") from error


def _read_counts(path: Path, noise_sd: float, rounds: int | None) -> ParticipationReport:
    with reading(path, "a CSV file of counts"):
        try:
            counts = ParticipationReport.read_csv(path, noise_sd=noise_sd, rounds=rounds)
        except ReportError as error:
            raise UserError(str(error)) from error
    if noise_sd and (counts.sd != noise_sd).any():
        raise UserError(f"{path}: its column sd states the errors already: leave --counts-sd out")
    return counts


class _Layers(BaseModel):
    model_config = ConfigDict(strict=True)

    shapes: tuple[tuple[PositiveInt, ...], ...]


def _read_layers(path: Path) -> tuple[tuple[int, ...], ...]:
    """`{"shapes": [[6, 3, 5, 5], …]}`, the tensors of the model in the order of a sum's entries."""
    try:
        return _Layers.model_validate_json(path.read_bytes()).shapes
    except ValidationError as error:
        raise UserError(f'{path}: expected {{"shapes": [[6, 3, 5, 5], …]}}, sides of 1 or more') from error


def _files(**paths: Path | None) -> dict[str, Path]:
    """The files that are given, by the field that each fills; a `UserError` about one that cannot be read."""
    given = {field: path for field, path in paths.items() if path is not None}
    for path in given.values():
        check_regular(path)
        if not path.exists() or (path.is_dir() and path != given.get("aggregates")):
            raise UserError(f"{path}: there is no such file")
        if not os.access(path, os.R_OK):
            raise UserError(f"{path}: cannot be read: permission denied")
    return given


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None

"""The logs of a real system as an audit reads them: sums, counts, cohort sizes and the model's layers."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from analytics.report import ParticipationReport, ReportError
from attacks.disaggregation import ProblemError
from fedsim.core.errors import UserError
from fedsim.core.files import reading
from scenarios.audit.sums import places_of, read_sums

COHORT_SIZE_DIGITS = 12
"""Most digits of a cohort size. No federation is larger, and sums over many rounds fit into 64 bits."""

OPTIONS = {"num_clients": "--clients", "solver": "--solver"}
"""Fields that come from no file: the option that sets each."""


@dataclass(frozen=True)
class Log:
    """The records of a server: `aggregates` (rounds, dim), and the others if there are any.

    `files` maps each field to its file, for messages.
    """

    aggregates: NDArray[Any]
    counts: ParticipationReport | None
    cohort_sizes: NDArray[np.int64] | None
    layer_shapes: Sequence[tuple[int, ...]] | None
    files: dict[str, Path]

    @classmethod
    def read(
        cls,
        aggregates: Path,
        counts: Path | None = None,
        *,
        counts_sd: float = 0.0,
        cohort_sizes: Path | None = None,
        layers: Path | None = None,
    ) -> Log:
        """Read files. `aggregates` may be a run's transcript folder, which also holds sizes and layers."""
        if aggregates.is_dir():
            cohort_sizes = cohort_sizes or _if_there(aggregates / "rounds.csv")
            layers = layers or _if_there(aggregates / "layers.json")
            aggregates /= "aggregates.npy"
        files = {
            "aggregates": aggregates,
            "counts": counts,
            "cohort_sizes": cohort_sizes,
            "layer_shapes": layers,
        }
        for path in filter(None, files.values()):
            if not path.is_file():
                raise UserError(f"{path}: there is no such file")
            if not os.access(path, os.R_OK):
                raise UserError(f"{path}: cannot be read: permission denied")
        sums = read_sums(aggregates)
        rounds = len(sums) if sums.ndim == 2 and len(sums) else None
        return cls(
            sums,
            None if counts is None else _read_counts(counts, counts_sd, rounds),
            None if cohort_sizes is None else _read_cohort_sizes(cohort_sizes),
            None if layers is None else _read_layers(layers),
            {field: path for field, path in files.items() if path is not None},
        )

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


def _read_cohort_sizes(path: Path) -> NDArray[np.int64]:
    """The column `cohort_size` of a table with one line per round."""
    sizes: list[int] = []
    rounds: list[int | str] = []
    with reading(path, "a CSV file of cohort sizes"):
        with path.open(newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
            reader = csv.DictReader(file)
            if "cohort_size" not in (reader.fieldnames or ()):
                raise UserError(f"{path}, line 1: expected a column cohort_size")
            for row in reader:
                size = str(row["cohort_size"]).strip()
                if not size.isdecimal() or len(size) > COHORT_SIZE_DIGITS:
                    raise UserError(
                        f"{path}, line {reader.line_num}: cohort_size is {row['cohort_size']!r}, "
                        "expected a whole number"
                    )
                sizes.append(int(size))
                rounds.append(row.get("round", len(rounds)))
        in_order = np.empty(len(sizes), dtype=np.int64)
        in_order[places_of(rounds)] = sizes
        return in_order


class _Layers(BaseModel):
    model_config = ConfigDict(strict=True)

    shapes: tuple[tuple[PositiveInt, ...], ...]


def _read_layers(path: Path) -> tuple[tuple[int, ...], ...]:
    """`{"shapes": [[6, 3, 5, 5], …]}`, the tensors of the model in the order of a sum's entries."""
    try:
        return _Layers.model_validate_json(path.read_bytes()).shapes
    except ValidationError as error:
        raise UserError(f'{path}: expected {{"shapes": [[6, 3, 5, 5], …]}}, sides of 1 or more') from error


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None

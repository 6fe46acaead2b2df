"""The logs of a real system as an audit reads them: sums, counts, and what else the server knows.

Sums may be larger than memory. They are memory-mapped; what cannot be mapped, an `.npz` or a `.parquet`
file, is copied piece by piece into a nameless file that can.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from analytics.report import ParticipationReport, ReportError
from attacks.disaggregation import ProblemError
from fedsim.core.errors import UserError

ROUNDS_AT_A_TIME = 64
"""Rows of a `.parquet` file that are in memory at a time."""

MOST_DIGITS = 12
"""Of the size of a cohort: nobody has so many clients, and sums of many rounds stay within 64 bits."""

OPTIONS = {"num_clients": "--clients", "solver": "--solver"}
"""What a user calls that which comes from no file."""


@dataclass(frozen=True)
class Log:
    """What a server stored: `aggregates` (rounds, dim) and, as far as there are any, the other records.

    `files` says where each field came from, for messages.
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
        """From files; `aggregates` may also be a run's transcript folder, which holds the other two."""
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
        """Turns what contradicts itself in the log into a user's mistake that names the file."""
        try:
            yield
        except ProblemError as error:
            field, _, message = str(error).partition(": ")
            raise UserError(f"{self.files.get(field, OPTIONS.get(field, field))}: {message}") from error


def read_sums(path: Path) -> NDArray[Any]:
    """(rounds, dim) memory-mapped, from `.npy`, from the only array of an `.npz`, or from `.parquet`."""
    try:
        match path.suffix.lower():
            case ".npy":
                return _mapped(path)
            case ".npz":
                return _from_npz(path)
            case ".parquet":
                return _from_parquet(path)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: not a {path.suffix} file of sums: {' '.join(str(error).split())}"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise UserError(f"{path}: expected .npy, .npz or .parquet")


def _mapped(path: Path | IO[bytes]) -> NDArray[Any]:
    sums: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # type: ignore[arg-type]
    return sums


def _from_npz(path: Path) -> NDArray[Any]:
    """The array `aggregates`, or the only one."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        wanted = [name for name in names if name == "aggregates.npy"] or names
        if len(wanted) != 1:
            raise ValueError(
                f"expected one array, or one named aggregates, but it holds {', '.join(names) or 'none'}"
            )
        with tempfile.TemporaryDirectory(prefix="fedsim-audit-") as folder:
            copy = Path(folder) / "aggregates.npy"
            with archive.open(wanted[0]) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 24)
            # The mapping outlives the file's name.
            return _mapped(copy)


def _from_parquet(path: Path) -> NDArray[Any]:
    """One row per round: a column for every entry, or one column of lists; `round` tells which is which."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(f"{path}: reading it needs pyarrow: pip install 'fedsim[parquet]'") from error

    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    columns = [name for name in file.schema_arrow.names if name != "round"]
    _check_columns([file.schema_arrow.field(name) for name in columns])
    rounds = file.metadata.num_rows
    place = np.arange(rounds)
    if "round" in file.schema_arrow.names:
        place = _places(file.read(["round"]).column(0).to_pylist())
    with tempfile.TemporaryFile(prefix="fedsim-audit-") as copy:
        sums: NDArray[Any] | None = None
        row = 0
        for batch in file.iter_batches(ROUNDS_AT_A_TIME, columns=columns):
            values = _rows_of(batch)
            if sums is None:
                sums = np.memmap(copy, dtype=np.float64, mode="w+", shape=(rounds, values.shape[1]))
            sums[place[row : row + len(values)]] = values
            row += len(values)
    if sums is None:
        raise ValueError("it holds no rows")
    return sums


def _check_columns(fields: Sequence[Any]) -> None:
    """Whatever is no number is no sum, even if it could be read as one, such as a date."""
    from pyarrow import types

    if not fields:
        raise ValueError("it has no column of sums")
    for field in fields:
        kind = field.type
        if len(fields) == 1 and any(
            is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list)
        ):
            kind = kind.value_type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            raise ValueError(f"its column {field.name} holds {field.type}, expected numbers")


def _places(rounds: Sequence[Any]) -> NDArray[np.intp]:
    """Where the rows belong whose rounds are listed, if these are all there are."""
    if sorted(map(str, rounds)) != sorted(map(str, range(len(rounds)))):
        raise ValueError(f"its column round is not 0 to {len(rounds) - 1}, each once")
    return np.array([int(number) for number in rounds], dtype=np.intp)


def _rows_of(batch: Any) -> NDArray[Any]:
    from pyarrow import compute

    one = batch.column(0)
    if not hasattr(one.type, "value_type"):
        return np.stack([np.asarray(column, dtype=np.float64) for column in batch.columns], axis=1)
    first, *others = set(compute.list_value_length(one).to_pylist())
    if others or first is None:
        raise ValueError("the lists of its rows differ in length")
    return np.asarray(one.flatten(), dtype=np.float64).reshape(len(one), first)


def _read_counts(path: Path, noise_sd: float, rounds: int | None) -> ParticipationReport:
    try:
        counts = ParticipationReport.read_csv(path, noise_sd=noise_sd, rounds=rounds)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a CSV file: {error}") from error
    except ReportError as error:
        raise UserError(str(error)) from error
    if noise_sd and (counts.sd != noise_sd).any():
        raise UserError(f"{path}: its column sd states the errors already: leave --counts-sd out")
    return counts


def _read_cohort_sizes(path: Path) -> NDArray[np.int64]:
    """The column `cohort_size` of a table with one line per round."""
    sizes: list[int] = []
    rounds: list[int | str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
            reader = csv.DictReader(file)
            if "cohort_size" not in (reader.fieldnames or ()):
                raise UserError(f"{path}, line 1: expected a column cohort_size")
            for row in reader:
                size = str(row["cohort_size"]).strip()
                if not size.isdecimal() or len(size) > MOST_DIGITS:
                    raise UserError(
                        f"{path}, line {reader.line_num}: cohort_size is {row['cohort_size']!r}, "
                        "expected a whole number"
                    )
                sizes.append(int(size))
                rounds.append(row.get("round", len(rounds)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a CSV file: {error}") from error
    in_order = np.empty(len(sizes), dtype=np.int64)
    try:
        in_order[_places(rounds)] = sizes
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
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

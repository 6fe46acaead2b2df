"""Reading sums that may be larger than memory.

They are memory-mapped. `.npz` and `.parquet` files cannot be mapped, so they are copied piece by piece into
an unnamed temporary file that can.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import check_expansion, reading

ROUNDS_AT_A_TIME = 64
"""Rows of a `.parquet` file that are in memory at a time."""


def read_sums(path: Path) -> NDArray[Any]:
    """(rounds, dim) memory-mapped, from an `.npy`, `.npz` or `.parquet` file."""
    with reading(path, f"a {path.suffix} file of sums"):
        match path.suffix.lower():
            case ".npy":
                return _mapped(path)
            case ".npz":
                return _from_npz(path)
            case ".parquet":
                return _from_parquet(path)
    raise UserError(f"{path}: expected .npy, .npz or .parquet")


def _mapped(path: Path | IO[bytes]) -> NDArray[Any]:
    sums: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # type: ignore[arg-type]
    return sums


def _from_npz(path: Path) -> NDArray[Any]:
    """The array `aggregates`, or the only one."""
    with zipfile.ZipFile(path) as archive:
        check_expansion(archive)
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
    """One row per round: a column per entry, or one column of lists. A column `round` gives the order."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(f"{path}: reading it needs pyarrow: pip install pyarrow") from error

    file = parquet.ParquetFile(path)
    names = file.schema_arrow.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two of its columns are called {twice[0]}")
    columns = [name for name in names if name != "round"]
    _check_columns([file.schema_arrow.field(name) for name in columns])
    rounds = file.metadata.num_rows
    place = np.arange(rounds)
    if "round" in file.schema_arrow.names:
        place = places_of(file.read(["round"]).column(0).to_pylist())
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
    """Refuse columns that hold no numbers, even if they convert to numbers, as dates do."""
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


def places_of(rounds: Sequence[Any]) -> NDArray[np.intp]:
    """The position of each row by its round; a `ValueError` unless every round is there once."""
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

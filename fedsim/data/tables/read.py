"""Reads a CSV or Parquet table into numbers, a target and the owners of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import check_regular, reading

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Table:
    """`features` (n, m) float64 with their `names`, `target` (n,) of any type, and `owners` (n,) if known."""

    features: NDArray[np.float64]
    names: tuple[str, ...]
    target: NDArray[Any]
    owners: NDArray[np.int64] | None


def read_table(path: Path, target: str, client: str | None) -> Table:
    """The table at a path, complete and numeric; a `UserError` names the column that is not."""
    frame = _frame(path)
    for column, setting in ((target, "target"), (client, "client")):
        if column is not None and column not in frame.columns:
            known = ", ".join(map(str, frame.columns[:8]))
            raise UserError(f"data.{setting}: {path} has no column {column!r} (expected one of {known} …)")
    if not len(frame):
        raise UserError(f"data.path: {path} has no rows")
    missing = frame.columns[frame.isna().any()]
    if len(missing):
        raise UserError(
            f"data.path: {path}: column {missing[0]!r} has missing values: fill them in, or leave these rows "
            "out"
        )
    rest = frame.drop(columns=[column for column in (target, client) if column is not None])
    if not len(rest.columns):
        raise UserError(f"data.path: {path} has no feature besides {target!r}")
    for column in rest.columns:
        if rest[column].dtype.kind not in "biuf":
            raise UserError(
                f"data.path: {path}: column {column!r} is not numeric: encode it, or leave it out"
            )
    values = rest.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        column = rest.columns[int(np.argmax(~np.isfinite(values).all(axis=0)))]
        raise UserError(f"data.path: {path}: column {column!r} has an infinite value")
    owners = None
    if client is not None:
        _, owners = np.unique(frame[client].astype(str).to_numpy(), return_inverse=True)
        owners = owners.astype(np.int64)
    return Table(values, tuple(map(str, rest.columns)), frame[target].to_numpy(), owners)


def _frame(path: Path) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("data.name: tables need the package pandas: pip install pandas") from error
    if path.suffix not in (".csv", ".parquet"):
        raise UserError(f"data.path: {path}: expected a .csv or .parquet file")
    with reading(path, "a table"):
        check_regular(path)
        if path.suffix == ".csv":
            return pd.read_csv(path, encoding="utf-8-sig")
        try:
            return pd.read_parquet(path)
        except ImportError as error:
            raise UserError(
                "data.path: a .parquet file needs the package pyarrow: pip install pyarrow"
            ) from error

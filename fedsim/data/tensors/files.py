"""Reading tensors: `.npz`, `.safetensors` and `.parquet`, each into arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import reading
from fedsim.data.archive import read_arrays

INPUTS, TARGETS, CLIENTS = "inputs", "targets", "clients"
TEST_INPUTS, TEST_TARGETS = "test_inputs", "test_targets"
NAMES = (INPUTS, TARGETS, CLIENTS, TEST_INPUTS, TEST_TARGETS)
"""The arrays of a data set: clients and the two of the test part may be missing."""

Arrays = Mapping[str, NDArray[Any]]


def read_tensors(path: Path) -> Arrays:
    """The arrays of a file, by the kind of its name; a `UserError` if it cannot be read."""
    if not path.is_file():
        raise UserError(f"data.path: there is no file {path} (expected .npz, .safetensors or .parquet)")
    match path.suffix:
        case ".npz":
            return read_arrays(path, needed=NAMES[:2], optional=NAMES[2:])
        case ".safetensors":
            return _safetensors(path)
        case ".parquet":
            return _parquet(path)
    raise UserError(f"data.path is {path}: expected .npz, .safetensors, .parquet or module:function")


def _safetensors(path: Path) -> Arrays:
    from safetensors.numpy import load_file

    with reading(path, "a safetensors file"):
        return dict(load_file(path))


def _parquet(path: Path) -> Arrays:
    """A table: the columns `targets` and `clients`, and inputs in all others (numbers or lists of them)."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"data.path: {path} needs a package: pip install pyarrow") from error
    with reading(path, "a Parquet file"):
        table = parquet.read_table(path)
        columns = {name: _column(table[name].to_pylist()) for name in table.column_names}
        features = [name for name in table.column_names if name not in (TARGETS, CLIENTS)]
        if not features:
            raise ValueError("it has no column of inputs")
        arrays = {name: columns[name] for name in (TARGETS, CLIENTS) if name in columns}
        alone = columns[features[0]]
        if len(features) == 1 and alone.ndim > 1:
            return {**arrays, INPUTS: alone}
        return {**arrays, INPUTS: np.stack([columns[name] for name in features], axis=1)}


def _column(values: list[Any]) -> NDArray[Any]:
    """Numbers, text, or lists of numbers that are equally long."""
    if any(value is None for value in values):
        raise ValueError("a value is missing")
    return np.array(values)

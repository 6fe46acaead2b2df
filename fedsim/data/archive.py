"""Arrays from an `.npz` file, each read to its end and checked before it is used."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import check_expansion, check_regular, parsing


def read_arrays(
    path: Path, *, needed: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """The named arrays of a file; `optional` ones only if the file has them.

    A truncated or altered file is a `UserError`: the checksum of an array is compared before it is parsed.
    """
    if not path.is_file():
        raise UserError(f"data.path: there is no file {path} (expected an .npz with {', '.join(needed)})")
    with one_line_about(path), zipfile.ZipFile(path) as archive:
        check_expansion(archive)
        there = set(archive.namelist())
        missing = [name for name in needed if f"{name}.npy" not in there]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing, expected {', '.join(needed)}")
        names = [*needed, *(name for name in optional if f"{name}.npy" in there)]
        # Read a member to its end before NumPy parses it: zipfile compares the checksum at the end.
        return {
            name: np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
            for name in names
        }


@contextmanager
def one_line_about(path: Path) -> Iterator[None]:
    """A block that reads a file's arrays: an exception in it is a `UserError` that names the file."""
    check_regular(path)
    with parsing(f"data.path: {path} is damaged or another kind of file"):
        yield


def as_labels(array: NDArray[Any]) -> NDArray[np.int64]:
    """Labels as (n,) int64; a `ValueError` if they are not integers."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"labels: expected (n,) integers, got {array.shape} {array.dtype}")
    return array.astype(np.int64)

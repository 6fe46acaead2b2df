"""Arrays from an `.npz` file, each read whole and checked before anybody uses it."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError


def read_arrays(
    path: Path, *, needed: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """The named arrays of a file; those of `optional` only where the file has them.

    A truncated or altered file is a `UserError`: the file's own checksum of an array is compared before
    the array is looked at.
    """
    if not path.is_file():
        raise UserError(f"data.path: there is no file {path} (expected an .npz with {', '.join(needed)})")
    with one_line_about(path), zipfile.ZipFile(path) as archive:
        there = set(archive.namelist())
        missing = [name for name in needed if f"{name}.npy" not in there]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing, expected {', '.join(needed)}")
        names = [*needed, *(name for name in optional if f"{name}.npy" in there)]
        # A member is read to its end before NumPy parses it, because its checksum is compared at the end.
        return {
            name: np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
            for name in names
        }


@contextmanager
def one_line_about(path: Path) -> Iterator[None]:
    """Turns whatever reading or checking a file's arrays may raise into a `UserError` that names the file."""
    try:
        yield
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        # RuntimeError and its NotImplementedError: a damaged entry that claims encryption, or an unknown
        # way of compression.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"data.path: {path} is damaged or something else: {reason}") from error


def as_labels(array: NDArray[Any]) -> NDArray[np.int64]:
    """An array of labels as the library has them; a `ValueError` where they are not whole numbers."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"labels: expected (n,) whole numbers, got {array.shape} {array.dtype}")
    return array.astype(np.int64)

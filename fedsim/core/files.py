"""Reading and writing files. A file is written whole or not at all: to a temporary file, then renamed.

A file that is read may hold anything: wrong content is a `UserError` of one line.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.core.errors import UserError

_SUFFIX = ".fedsim-part"
_PRIVATE_FILE, _PRIVATE_FOLDER, _OTHERS = 0o600, 0o700, 0o077
"""Modes of a file and a folder that only their owner may use, and the bits of everybody else."""
_WRONG_CONTENT = (OSError, ValueError, TypeError, EOFError, csv.Error, zipfile.BadZipFile)


@contextmanager
def written_whole(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a path to write to; it becomes `path` only if the block ends without an exception.

    Only its owner may read a `private` file, or any file in a private folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_SUFFIX}")
    try:
        if private or not path.parent.stat().st_mode & _OTHERS:
            temporary.touch(mode=_PRIVATE_FILE)
            temporary.chmod(_PRIVATE_FILE)
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def private_folder(folder: Path) -> None:
    """Create the folder if need be; only its owner may enter it, and read the files written there later."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(_PRIVATE_FOLDER)


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """A block that only parses a file as `what`: an exception in it is a `UserError` about the content."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{path}: not {what}: {error.filename} is missing") from error
    except KeyError as error:
        raise UserError(f"{path}: not {what}: {error.args[0]} is missing") from error
    except _WRONG_CONTENT as error:
        raise UserError(f"{path}: not {what}: {' '.join(str(error).split())}") from error


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """A block that writes to the user's `--out`: an `OSError` in it is a `UserError` about that choice."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written to: {error.strerror}") from error


def check_writable(folder: Path) -> None:
    """An `OSError` if the folder refuses new files; a folder that does not exist is not created.

    Better to find out before long work than after it.
    """
    while not folder.exists():
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        pass


def leftovers(folder: Path) -> set[Path]:
    """The temporary files that killed processes left in a folder and below."""
    return set(folder.rglob(f".*{_SUFFIX}"))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON whole; NaN is refused, because JSON has none."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file; `what` describes the file in error messages."""
    with reading(path, what):
        return dict(json.loads(path.read_text(encoding="utf-8")))


def write_npy(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write one array whole."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        # The same bytes as np.save, which does not say why a write failed, such as a full disk.
        file.write(npy_header(array.dtype, array.shape))
        file.write(np.ascontiguousarray(array).data)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file; the entries follow, row by row."""
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


def write_npz(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    """Write named arrays whole; the same arrays give the same bytes (NumPy dates its entries 1980)."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
